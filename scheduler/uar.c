/* SPDX-License-Identifier: BSD-2-Clause */
#include "scheduler/uar.h"

#include <stdbool.h>

#include "scheduler/atomic.h"

/*
 * libmlx5 has 16 registers per context for QPs: 4 for one QP each, 12 that are shared from the
 * 17th QP on (rdma-core, providers/mlx5: MLX5_TOTAL_UUARS, MLX5_NUM_LOW_LAT_UUARS).
 */
#define DRIVER_REGISTERS 16
/* Doors per thread before QPs share one: threads often make a few QPs before they post. */
#define DOORS_PER_THREAD 4

static uint64_t bit(unsigned thread)
{
	return UINT64_C(1) << (thread & 63);
}

static uint32_t count(uint64_t mask)
{
	return (uint32_t)__builtin_popcountll(mask);
}

static uint32_t max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* ---- what a door is to a thread ---- */

/* Nobody else made QPs here or was seen to post. */
static bool is_own(const struct rnice_uar_door *d, uint64_t me)
{
	return d->qps && !((d->makers | load_relaxed(&d->posters)) & ~me);
}

/* Whoever made them: this thread posts here, and no other. */
static bool posts_alone(const struct rnice_uar_door *d, uint64_t me)
{
	return d->qps && load_relaxed(&d->posters) == me;
}

static bool is_empty(const struct rnice_uar_door *d, uint64_t me)
{
	(void)me;
	return !d->qps;
}

static bool is_any(const struct rnice_uar_door *d, uint64_t me)
{
	(void)d;
	(void)me;
	return true;
}

/* The least loaded door of which @is holds, RNICE_UAR_NATIVE if there is none. */
static int least(const struct rnice_uar *u, uint64_t me,
		 bool (*is)(const struct rnice_uar_door *, uint64_t))
{
	int best = RNICE_UAR_NATIVE;

	for (uint32_t i = 0; i < u->doors; i++)
		if (is(&u->door[i], me) && (best < 0 || u->door[i].qps < u->door[best].qps))
			best = (int)i;
	return best;
}

static uint32_t count_own(const struct rnice_uar *u, uint64_t me)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < u->doors; i++)
		n += is_own(&u->door[i], me);
	return n;
}

/* The door where the fewest other threads are, and of these the one with the fewest QPs. */
static int least_crowded(const struct rnice_uar *u, uint64_t me)
{
	uint64_t best_cost = UINT64_MAX, cost;
	int best = RNICE_UAR_NATIVE;

	for (uint32_t i = 0; i < u->doors; i++) {
		const struct rnice_uar_door *d = &u->door[i];

		cost = (uint64_t)count((d->makers | load_relaxed(&d->posters)) & ~me) << 32 |
		       d->qps;
		if (cost < best_cost) {
			best_cost = cost;
			best = (int)i;
		}
	}
	return best;
}

static int empty_or_new(const struct rnice_uar *u, uint32_t left)
{
	int door = least(u, 0, is_empty);

	if (door >= 0)
		return door;
	return left && u->doors < RNICE_UAR_DOORS ? RNICE_UAR_NEW : RNICE_UAR_NATIVE;
}

/* ---- the modes ---- */

static int pick_shared(const struct rnice_uar *u, uint32_t left)
{
	return u->doors ? 0 : empty_or_new(u, left);
}

uint32_t rnice_uar_limit(const struct rnice_uar *u, uint32_t left)
{
	uint32_t threads = count(u->makers | load_relaxed(&u->posters));
	uint32_t want = DOORS_PER_THREAD * max(DRIVER_REGISTERS, max(u->cpus, threads));
	uint32_t may = (u->doors + left + 1) / 2; /* the next process shall find some, too */

	want = want < may ? want : may;
	return want < RNICE_UAR_DOORS ? want : RNICE_UAR_DOORS;
}

/* It was seen to make QPs for others, and never posted to one that it made. */
static bool makes_for_others(const struct rnice_uar *u, uint64_t me)
{
	return load_relaxed(&u->given) & me && !(load_relaxed(&u->own) & me);
}

/* One where nobody is, as far as the limit lets there be new ones. */
static int pick_vacant(const struct rnice_uar *u, uint32_t left)
{
	return empty_or_new(u, u->doors < rnice_uar_limit(u, left) ? left : 0);
}

/* Whoever will post: evenly over the doors. */
static int pick_spread(const struct rnice_uar *u, uint32_t left)
{
	int door = pick_vacant(u, left);

	return door != RNICE_UAR_NATIVE ? door : least(u, 0, is_any);
}

/*
 * A thread that was seen to post alone at a door gets its QPs there. One that was not may make
 * them for others: its QPs are kept apart from each other while doors last, its part of them if
 * there are several makers. A new maker always gets one door of its own.
 */
static int pick_balanced(const struct rnice_uar *u, unsigned thread, uint32_t left)
{
	uint64_t me = bit(thread), makers = u->makers | me;
	uint32_t limit = rnice_uar_limit(u, left), own = count_own(u, me);
	int door = least(u, me, posts_alone);
	bool fresh = !(u->makers & me);

	if (door >= 0)
		return door;
	if (makes_for_others(u, me))
		return pick_spread(u, left);
	if (fresh || (own < max(1, limit / count(makers)) && u->doors <= limit)) {
		door = empty_or_new(u, fresh || u->doors < limit ? left : 0);
		if (door != RNICE_UAR_NATIVE)
			return door;
	}
	door = least(u, me, is_own);
	return door >= 0 ? door : least_crowded(u, me);
}

/* Will @thread itself post to what it makes? Not if that was never so; else as far as was seen. */
static bool posts_itself(const struct rnice_uar *u, unsigned thread)
{
	uint64_t me = bit(thread);

	if (load_relaxed(&u->given) & me)
		return false;
	return load_relaxed(&u->own) & me || count(u->makers | me) > 1;
}

/*
 * As long as the driver gives each QP a register of its own, nothing is better. After that its
 * registers are shared by whom it may be. A thread that posts to its own QPs gets a door of its
 * own. Who will post to QPs that are made for others is not known: each gets a vacant door while
 * there are any. After that the driver's registers are better than a door with two threads: the
 * driver holds its lock for a shorter time.
 */
static int pick_auto(const struct rnice_uar *u, unsigned thread, uint32_t left)
{
	int door;

	if (u->native < DRIVER_REGISTERS)
		return RNICE_UAR_NATIVE;
	if (!posts_itself(u, thread))
		return pick_vacant(u, left);
	door = least(u, bit(thread), is_own);
	return door >= 0 ? door : empty_or_new(u, left);
}

int rnice_uar_pick(const struct rnice_uar *u, unsigned thread, uint32_t left)
{
	switch (u->mode) {
	case RNICE_UAR_SHARED:
		return pick_shared(u, left);
	case RNICE_UAR_BALANCED:
		return pick_balanced(u, thread, left);
	case RNICE_UAR_PER_QP:
		return empty_or_new(u, left);
	case RNICE_UAR_AUTO:
		return pick_auto(u, thread, left);
	case RNICE_UAR_DRIVER:
		break;
	}
	return RNICE_UAR_NATIVE;
}

/* ---- what happened ---- */

void rnice_uar_placed(struct rnice_uar *u, int door, unsigned thread)
{
	u->makers |= bit(thread);
	if (door < 0) {
		u->native++;
		return;
	}
	u->door[door].qps++;
	u->door[door].makers |= bit(thread);
}

void rnice_uar_gone(struct rnice_uar *u, int door)
{
	if (door < 0) {
		u->native--;
		return;
	}
	if (--u->door[door].qps)
		return;
	u->door[door].makers = 0;
	store_relaxed(&u->door[door].posters, 0);
}

void rnice_uar_posted(struct rnice_uar *u, int door, unsigned maker, unsigned thread)
{
	or_relaxed(&u->posters, bit(thread));
	if (maker == thread)
		or_relaxed(&u->own, bit(thread));
	else
		or_relaxed(&u->given, bit(maker));
	if (door >= 0)
		or_relaxed(&u->door[door].posters, bit(thread));
}

void rnice_uar_forget_threads(struct rnice_uar *u, uint64_t mask)
{
	u->makers &= ~mask;
	and_relaxed(&u->posters, ~mask);
	and_relaxed(&u->own, ~mask);
	and_relaxed(&u->given, ~mask);
	for (uint32_t i = 0; i < u->doors; i++) {
		u->door[i].makers &= ~mask;
		and_relaxed(&u->door[i].posters, ~mask);
	}
}
