/* SPDX-License-Identifier: BSD-2-Clause */
#include "scheduler/bucket.h"

#include "scheduler/atomic.h"
#include "scheduler/control.h"

#define SEC UINT64_C(1000000000)
#define BURST_NS 1000000
#define BURST_MIN (64U << 10)
#define DEBT_MAX (INT64_C(1) << 42) /* more is not debt: the allowance went once round */

void rnice_bucket_init(struct rnice_bucket *b, uint64_t rate)
{
	uint64_t burst = rnice_muldiv(rate, BURST_NS, SEC);

	b->rate = rate;
	b->burst = burst < BURST_MIN ? BURST_MIN : burst;
	b->start = 0;
	b->spent = 0;
}

/* Modulo 2^64, as spent is: only differences count. Times before the start count as the start. */
static uint64_t allowance(struct rnice_bucket *b, uint64_t now)
{
	uint64_t start = load_relaxed(&b->start);

	if (unlikely(start == 0)) {
		cas_seq_cst(&b->start, 0, now ? now : 1);
		start = load_relaxed(&b->start);
	}
	if (now <= start)
		return 0;
	return (uint64_t)((unsigned __int128)(now - start) * b->rate / SEC);
}

/* @spent, lifted so that no more than a burst is saved up. */
static uint64_t lifted(const struct rnice_bucket *b, uint64_t spent, uint64_t allowed)
{
	int64_t debt = (int64_t)(spent - allowed);

	if (debt > DEBT_MAX || debt < -(int64_t)b->burst)
		return allowed - b->burst;
	return spent;
}

uint64_t rnice_bucket_wait(struct rnice_bucket *b, uint64_t now)
{
	uint64_t allowed, debt;

	if (b->rate == 0)
		return 0;
	allowed = allowance(b, now);
	debt = lifted(b, load_relaxed(&b->spent), allowed) - allowed;
	if ((int64_t)debt <= 0)
		return 0;
	return rnice_muldiv(debt, SEC, b->rate) + 1;
}

/* Relaxed: spent publishes no other memory; the CAS alone keeps the sum exact. */
bool rnice_bucket_take(struct rnice_bucket *b, uint64_t bytes, uint64_t now)
{
	uint64_t old = load_relaxed(&b->spent), allowed, spent;

	if (b->rate == 0)
		return true;
	allowed = allowance(b, now);
	do {
		spent = lifted(b, old, allowed);
		if ((int64_t)(spent - allowed) > 0)
			return false;
	} while (!cas_weak_relaxed(&b->spent, &old, spent + bytes));
	return true;
}

void rnice_bucket_return(struct rnice_bucket *b, uint64_t bytes)
{
	if (b->rate)
		sub_relaxed(&b->spent, bytes);
}
