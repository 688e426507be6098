/* SPDX-License-Identifier: BSD-2-Clause */
/* Doorbell registers in the segment: the host's budget, and what a process shows. */
#include "test_segment.h"

#include "scheduler/register.h"

static struct rnice_port *port_of(struct rnice_segment *seg, const char *device)
{
	struct rnice_port *port = NULL;

	cr_assert_eq(rnice_port_attach(join_as(seg, (struct rnice_proc_info){0}), device, &port),
		     0);
	return port;
}

Test(doorbells, all_processes_together_get_the_budget_and_no_more)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev"), *b = port_of(seg, "dev");
	struct rnice_device_stat st;

	cr_expect(rnice_doorbells_reserve(a, 6, 10));
	cr_expect(rnice_doorbells_reserve(b, 4, 10));
	cr_expect_not(rnice_doorbells_reserve(a, 1, 10));
	cr_expect_not(rnice_doorbells_reserve(b, 1, 10));
	cr_expect_eq(rnice_doorbells_left(a, 10), 0);
	cr_assert(rnice_segment_device(seg, a->index, &st));
	cr_expect_eq(st.doorbells, 10);
	rnice_doorbells_unreserve(b, 4);
	cr_expect_eq(rnice_doorbells_left(a, 10), 4);
	cr_expect(rnice_doorbells_reserve(a, 4, 10));
}

Test(doorbells, devices_have_budgets_of_their_own)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev"), *b = port_of(seg, "other");

	cr_expect(rnice_doorbells_reserve(a, 10, 10));
	cr_expect(rnice_doorbells_reserve(b, 10, 10));
}

Test(doorbells, leaving_gives_them_back)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev"), *b = NULL;
	struct rnice_proc_info info = {0};
	struct rnice_proc *p;

	cr_assert_eq(rnice_proc_join(seg, &info, &p), 0);
	cr_assert_eq(rnice_port_attach(p, "dev", &b), 0);
	cr_expect(rnice_doorbells_reserve(b, 10, 10));
	rnice_proc_leave(p);
	cr_expect_eq(rnice_doorbells_left(a, 10), 10);
}

Test(doorbells, those_of_a_killed_process_are_reclaimed_by_who_needs_them)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev");
	int *ready = shared_memory(sizeof(*ready));
	pid_t pid = fork();

	if (pid == 0) {
		*ready = rnice_doorbells_reserve(port_of(seg, "dev"), 10, 10);
		pause();
	}
	while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE))
		sleep_ns(MSEC);
	cr_expect_not(rnice_doorbells_reserve(a, 1, 10), "the living keep theirs");
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(wait_for(pid), 128 + SIGKILL);
	cr_expect(rnice_doorbells_reserve(a, 10, 10));
	cr_expect_eq(rnice_doorbells_reserved(seg->shm, a->index), 10);
}

Test(doorbells, killed_at_any_moment_again_and_again_nothing_leaks, .timeout = 60)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev");
	uint64_t state = 42;

	for (int i = 0; i < 300; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			struct rnice_port *b = port_of(seg, "dev");

			for (;;)
				if (rnice_doorbells_reserve(b, 2, 64))
					rnice_doorbells_unreserve(b, 2);
		}
		sleep_ns(draw(&state, 3 * MSEC));
		kill(pid, SIGKILL);
		wait_for(pid);
	}
	cr_expect(rnice_doorbells_reserve(a, 64, 64));
}

Test(doorbells, processes_that_race_never_exceed_the_budget)
{
	enum { CHILDREN = 4, ROUNDS = 2000, BUDGET = 7 };
	struct rnice_segment *seg = fresh_segment();
	uint64_t *held = shared_memory(sizeof(*held)), *worst = shared_memory(sizeof(*worst));
	pid_t pid[CHILDREN];

	for (int i = 0; i < CHILDREN; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		struct rnice_port *port = port_of(seg, "dev");

		for (int r = 0; r < ROUNDS; r++) {
			if (!rnice_doorbells_reserve(port, 2, BUDGET))
				continue;
			if (add_seq_cst(held, 2) + 2 > BUDGET)
				store_relaxed(worst, 1);
			add_seq_cst(held, (uint64_t)-2);
			rnice_doorbells_unreserve(port, 2);
		}
		_exit(0);
	}
	for (int i = 0; i < CHILDREN; i++)
		cr_expect_eq(wait_for(pid[i]), 0);
	cr_expect_eq(*worst, 0);
}

Test(doorbells, garbage_counts_as_nothing)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev"), *b = port_of(seg, "dev");

	store_relaxed(&b->flow->doorbells, UINT64_MAX);
	cr_expect(rnice_doorbells_reserve(a, 10, 10));
}

Test(doorbells, who_lost_its_slot_reserves_nothing)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = port_of(seg, "dev");

	store_relaxed(&a->proc->slot->owner, a->proc->me.word + 1);
	cr_expect_not(rnice_doorbells_reserve(a, 1, 10));
	cr_expect_eq(load_relaxed(&a->flow->doorbells), 0);
}

Test(registers, what_is_shown_is_read_back)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port;
	struct rnice_register_stat in = {.page = 300,
					 .offset = 0xa00,
					 .qps = 5000,
					 .threads = 17,
					 .reserved = true},
				   out[RNICE_MAX_REGISTERS];
	int record;

	port_of(seg, "first");
	port = port_of(seg, "dev");
	record = rnice_register_claim(port);
	rnice_register_show(port, record, &in);
	cr_assert_eq(rnice_segment_registers(seg, port->proc->index, out), 1);
	cr_expect_eq(out[0].device, port->index);
	cr_expect_eq(out[0].page, 300);
	cr_expect_eq(out[0].offset, 0xa00);
	cr_expect_eq(out[0].qps, 5000);
	cr_expect_eq(out[0].threads, 17);
	cr_expect(out[0].reserved);
	rnice_register_release(port, record);
	cr_expect_eq(rnice_segment_registers(seg, port->proc->index, out), 0);
}

Test(registers, more_than_can_be_shown_do_no_harm)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port = port_of(seg, "dev");
	struct rnice_register_stat in = {.qps = 1, .threads = 1000}, out[RNICE_MAX_REGISTERS];

	for (int i = 0; i < RNICE_MAX_REGISTERS; i++) {
		int record = rnice_register_claim(port);

		cr_assert_eq(record, i);
		rnice_register_show(port, record, &in);
	}
	cr_expect_eq(rnice_register_claim(port), -1);
	rnice_register_show(port, -1, &in);
	rnice_register_release(port, -1);
	cr_expect_eq(rnice_segment_registers(seg, port->proc->index, out), RNICE_MAX_REGISTERS);
	cr_expect_eq(out[0].threads, 255, "as many as the word holds");
}

Test(registers, garbage_is_not_shown)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port = port_of(seg, "dev");
	struct rnice_register_stat out[RNICE_MAX_REGISTERS];

	memset(port->proc->slot->reg, 0xff, sizeof(port->proc->slot->reg));
	cr_expect_eq(rnice_segment_registers(seg, port->proc->index, out), 0);
	cr_expect_eq(rnice_segment_registers(seg, RNICE_MAX_PROCS, out), 0);
}

Test(registers, a_dead_process_leaves_none_to_the_next)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_register_stat in = {.qps = 1}, out[RNICE_MAX_REGISTERS];
	struct rnice_proc *next;
	pid_t pid = fork();

	if (pid == 0) {
		struct rnice_port *port = port_of(seg, "dev");

		rnice_register_show(port, rnice_register_claim(port), &in);
		_exit(0);
	}
	cr_assert_eq(wait_for(pid), 0);
	next = join_as(seg, (struct rnice_proc_info){0});
	cr_expect_eq(next->index, 0);
	cr_expect_eq(rnice_segment_registers(seg, 0, out), 0);
}
