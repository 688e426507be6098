/* SPDX-License-Identifier: BSD-2-Clause */
/* Which doorbell register gets the next QP. */
#include <criterion/criterion.h>

#include "scheduler/uar.h"

#define PLENTY 512
#define DRIVER_REGISTERS 16

static struct rnice_uar u;

static void start(enum rnice_uar_mode mode, uint32_t cpus)
{
	u = (struct rnice_uar){.mode = mode, .cpus = cpus};
}

/* As interpose/uar.c does it: the door of the QP that @thread makes. */
static int make_qp(unsigned thread, uint32_t *left)
{
	int door = rnice_uar_pick(&u, thread, *left);

	if (door == RNICE_UAR_NEW) {
		cr_assert(*left > 0 && u.doors < RNICE_UAR_DOORS);
		(*left)--;
		door = (int)u.doors++;
	}
	cr_assert(door == RNICE_UAR_NATIVE || (door >= 0 && door < (int)u.doors));
	rnice_uar_placed(&u, door, thread);
	return door;
}

/* @threads make @qps each in turn, and post to their own only; the doors that several ring. */
static unsigned shared_doors(unsigned threads, unsigned qps, uint32_t left)
{
	unsigned shared = 0;

	for (unsigned q = 0; q < qps; q++)
		for (unsigned t = 0; t < threads; t++)
			rnice_uar_posted(&u, make_qp(t, &left), t, t);
	for (unsigned i = 0; i < u.doors; i++)
		shared += __builtin_popcountll(u.door[i].posters) > 1;
	return shared;
}

Test(uar, driver_never_moves_anything)
{
	uint32_t left = PLENTY;

	start(RNICE_UAR_DRIVER, 8);
	for (unsigned i = 0; i < 100; i++)
		cr_expect_eq(make_qp(i % 4, &left), RNICE_UAR_NATIVE);
	cr_expect_eq(left, PLENTY);
}

Test(uar, shared_has_one_door_for_all)
{
	uint32_t left = PLENTY;

	start(RNICE_UAR_SHARED, 8);
	for (unsigned i = 0; i < 100; i++)
		cr_expect_eq(make_qp(i % 7, &left), 0);
	cr_expect_eq(left, PLENTY - 1);
}

Test(uar, per_qp_has_a_door_for_each_until_none_is_left)
{
	uint32_t left = 10;

	start(RNICE_UAR_PER_QP, 8);
	for (int i = 0; i < 10; i++)
		cr_expect_eq(make_qp(0, &left), i);
	cr_expect_eq(make_qp(0, &left), RNICE_UAR_NATIVE);
}

Test(uar, a_door_whose_qps_are_gone_is_used_again)
{
	uint32_t left = 2;

	start(RNICE_UAR_PER_QP, 8);
	make_qp(0, &left);
	make_qp(0, &left);
	rnice_uar_posted(&u, 0, 0, 5);
	rnice_uar_gone(&u, 0);
	cr_expect_eq(u.door[0].posters, 0);
	cr_expect_eq(make_qp(1, &left), 0);
	cr_expect_eq(make_qp(1, &left), RNICE_UAR_NATIVE);
}

Test(uar, no_mode_goes_beyond_what_a_context_can_have)
{
	static const enum rnice_uar_mode modes[] = {RNICE_UAR_SHARED, RNICE_UAR_BALANCED,
						    RNICE_UAR_PER_QP, RNICE_UAR_AUTO};

	for (unsigned m = 0; m < 4; m++) {
		uint32_t left = 100000;

		start(modes[m], 4096);
		for (unsigned i = 0; i < 2000; i++)
			make_qp(i % 60, &left); /* checks the bounds */
		cr_expect_leq(u.doors, RNICE_UAR_DOORS);
	}
}

Test(uar, balanced_keeps_threads_apart_that_make_their_own_qps)
{
	static const unsigned threads[] = {1, 2, 16, 40, 62}, qps[] = {1, 4, 30};

	for (unsigned t = 0; t < 5; t++)
		for (unsigned q = 0; q < 3; q++) {
			start(RNICE_UAR_BALANCED, 2);
			cr_expect_eq(shared_doors(threads[t], qps[q], PLENTY), 0,
				     "%u threads, %u QPs", threads[t], qps[q]);
		}
}

/* All of a thread's before the next one's, nobody has posted yet. */
Test(uar, balanced_keeps_threads_apart_that_make_many_qps_at_once)
{
	uint32_t left = PLENTY;
	uint64_t makers;

	start(RNICE_UAR_BALANCED, 2);
	for (unsigned t = 0; t < 16; t++)
		for (unsigned q = 0; q < 30; q++)
			make_qp(t, &left);
	for (unsigned i = 0; i < u.doors; i++) {
		makers = u.door[i].makers;
		cr_expect_eq(__builtin_popcountll(makers), 1, "door %u: makers %#lx", i,
			     (unsigned long)makers);
	}
}

Test(uar, balanced_spreads_the_qps_that_one_thread_makes_for_others)
{
	uint32_t left = PLENTY;

	start(RNICE_UAR_BALANCED, 2);
	for (int i = 0; i < 64; i++)
		cr_expect_eq(make_qp(0, &left), i);
	for (int i = 0; i < 64; i++)
		rnice_uar_posted(&u, i, 0, 1 + (unsigned)i % 16);
	/* There is a limit; beyond it the doors fill up evenly. */
	for (int i = 0; i < 192; i++)
		make_qp(0, &left);
	for (unsigned i = 0; i < u.doors; i++)
		cr_expect_leq(u.door[i].qps, 256 / u.doors + 1);
}

Test(uar, balanced_puts_the_qps_of_a_thread_where_it_posts)
{
	uint32_t left = PLENTY;
	int door;

	start(RNICE_UAR_BALANCED, 2);
	make_qp(0, &left);
	door = make_qp(1, &left);
	rnice_uar_posted(&u, door, 1, 1);
	for (int i = 0; i < 20; i++)
		cr_expect_eq(make_qp(1, &left), door);
}

Test(uar, balanced_leaves_something_to_the_next_process)
{
	uint32_t left = 40;

	start(RNICE_UAR_BALANCED, 128);
	for (int i = 0; i < 500; i++)
		make_qp(0, &left);
	cr_expect_geq(left, 1);
}

Test(uar, balanced_with_nothing_left_shares_what_it_has)
{
	uint32_t left = 1;

	start(RNICE_UAR_BALANCED, 8);
	cr_expect_eq(make_qp(0, &left), 0);
	cr_expect_eq(make_qp(1, &left), 0);
	left = 0;
	start(RNICE_UAR_BALANCED, 8);
	cr_expect_eq(make_qp(0, &left), RNICE_UAR_NATIVE);
}

Test(uar, the_limit_follows_cpus_threads_and_what_is_left)
{
	start(RNICE_UAR_BALANCED, 2);
	cr_expect_eq(rnice_uar_limit(&u, PLENTY), 4 * DRIVER_REGISTERS);
	start(RNICE_UAR_BALANCED, 32);
	cr_expect_eq(rnice_uar_limit(&u, PLENTY), 128);
	cr_expect_eq(rnice_uar_limit(&u, 20), 10);
	cr_expect_eq(rnice_uar_limit(&u, 0), 0);
	start(RNICE_UAR_BALANCED, 1);
	for (unsigned t = 0; t < 40; t++)
		rnice_uar_posted(&u, RNICE_UAR_NATIVE, t, t);
	cr_expect_eq(rnice_uar_limit(&u, PLENTY), 160);
}

Test(uar, auto_leaves_the_first_sixteen_to_the_driver)
{
	uint32_t left = PLENTY;

	start(RNICE_UAR_AUTO, 8);
	for (unsigned i = 0; i < DRIVER_REGISTERS; i++)
		rnice_uar_posted(&u, make_qp(i, &left), i, i);
	cr_expect_eq(u.doors, 0);
	cr_expect_eq(make_qp(3, &left), 0, "the 17th is for a thread that posts to its own QPs");
}

/* One thread makes 100 QPs; @seen: others were seen to post to them, in turns. */
static void auto_for_others(bool seen, uint32_t budget, unsigned doors)
{
	uint32_t left = budget;

	start(RNICE_UAR_AUTO, 8);
	for (unsigned i = 0; i < 100; i++) {
		int door = make_qp(0, &left);

		if (seen)
			rnice_uar_posted(&u, door, 0, 1 + i % 16);
	}
	cr_expect_eq(u.doors, doors, "seen %d: %u", seen, u.doors);
	cr_expect_eq(u.native, 100 - doors, "the others stay with the driver");
	for (unsigned i = 0; i < u.doors; i++)
		cr_expect_eq(u.door[i].qps, 1);
}

Test(uar, auto_keeps_qps_apart_that_one_thread_makes_for_others)
{
	auto_for_others(true, PLENTY, 4 * 17); /* with the maker 17 threads */
	auto_for_others(false, PLENTY, 4 * DRIVER_REGISTERS);
	auto_for_others(true, 20, 10);
	auto_for_others(false, 0, 0);
}

Test(uar, auto_never_lets_threads_share_a_door)
{
	start(RNICE_UAR_AUTO, 8);
	cr_expect_eq(shared_doors(40, 8, PLENTY), 0);
	cr_expect_leq(u.doors, 40);
	start(RNICE_UAR_AUTO, 8);
	cr_expect_eq(shared_doors(40, 8, 5), 0);
	cr_expect_eq(u.doors, 5, "the others stay with the driver");
}

Test(uar, what_a_gone_thread_did_is_forgotten)
{
	uint32_t left = PLENTY;
	int door;

	start(RNICE_UAR_BALANCED, 8);
	door = make_qp(7, &left);
	rnice_uar_posted(&u, door, 7, 7);
	rnice_uar_forget_threads(&u, 1u << 7);
	cr_expect_eq(u.makers | u.posters | u.own | u.given, 0);
	cr_expect_eq(u.door[door].makers | u.door[door].posters, 0);
	cr_expect_eq(u.door[door].qps, 1);
}
