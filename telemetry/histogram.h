/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A log-linear histogram of latencies: four equal buckets per power of two, in nanoseconds.
 *
 *	bucket	0: [0, 64)   1: [64, 80)   2: [80, 96)   3: [96, 112)   4: [112, 128)
 *		5: [128, 160)   6: [160, 192)   ...   127: [206 s, 241 s) and everything above
 *
 * Error: a bucket is at most a quarter as wide as its lower bound. A value and what is reported for
 * it lie in one bucket, so the report is between 4/5 and 5/4 of the truth: from 64 ns to 240 s;
 * below, it is off by less than 64 ns; above, it says 240 s.
 *
 * A histogram is a plain array of counters, so it can live in shared memory. Nothing here writes
 * one: the owner adds one to buckets[rnice_histogram_bucket(ns)] in the way its memory demands.
 * Threads: every call from any, on a histogram that nobody writes meanwhile: copy a living
 * one first.
 */
#ifndef RNICE_HISTOGRAM_H
#define RNICE_HISTOGRAM_H

#include <stdint.h>

#define RNICE_HISTOGRAM_BUCKETS 128
#define RNICE_HISTOGRAM_FIRST_BITS 6 /* bucket 0 ends at 2^6 ns */
#define RNICE_HISTOGRAM_SUB_BITS 2   /* 2^2 buckets per power of two */

/* The bucket of @ns, always < RNICE_HISTOGRAM_BUCKETS. A handful of instructions, no float. */
static inline unsigned rnice_histogram_bucket(uint64_t ns)
{
	unsigned octave, sub, bucket;

	if (ns < (UINT64_C(1) << RNICE_HISTOGRAM_FIRST_BITS))
		return 0;
	octave = 63 - (unsigned)__builtin_clzll(ns);
	sub = (ns >> (octave - RNICE_HISTOGRAM_SUB_BITS)) & ((1U << RNICE_HISTOGRAM_SUB_BITS) - 1);
	bucket = ((octave - RNICE_HISTOGRAM_FIRST_BITS) << RNICE_HISTOGRAM_SUB_BITS) + sub + 1;
	return bucket < RNICE_HISTOGRAM_BUCKETS ? bucket : RNICE_HISTOGRAM_BUCKETS - 1;
}

/* The least value, in ns, of @bucket; @bucket = RNICE_HISTOGRAM_BUCKETS gives the upper end. */
uint64_t rnice_histogram_lower(unsigned bucket);

/* How many values there are; stops at UINT64_MAX, as garbage may add up to more. */
uint64_t rnice_histogram_count(const uint64_t buckets[RNICE_HISTOGRAM_BUCKETS]);

/*
 * The value, in ns, that @ppm millionths of the recorded ones do not exceed: 500000 is the median,
 * 999000 is p99.9, whatever is above 1000000 counts as that. Between the bounds of its bucket the
 * value is interpolated; a lone value reports its bucket's upper bound. 0: nothing was recorded.
 */
uint64_t rnice_histogram_percentile(const uint64_t buckets[RNICE_HISTOGRAM_BUCKETS], uint32_t ppm);

#endif
