/* SPDX-License-Identifier: BSD-2-Clause */
/* The latency histogram: where values go, and how true the percentiles are. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/histogram.h"

#define LAST (RNICE_HISTOGRAM_BUCKETS - 1)

static uint64_t buckets[RNICE_HISTOGRAM_BUCKETS];

static void record(uint64_t ns)
{
	buckets[rnice_histogram_bucket(ns)]++;
}

/* Deterministic, and spread over all magnitudes. */
static uint64_t next_value(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *state >> (26 + *state % 32);
}

Test(histogram, everything_below_64_ns_is_in_the_first_bucket)
{
	cr_expect_eq(rnice_histogram_bucket(0), 0);
	cr_expect_eq(rnice_histogram_bucket(63), 0);
	cr_expect_eq(rnice_histogram_bucket(64), 1);
}

Test(histogram, every_bucket_starts_at_its_lower_bound)
{
	for (unsigned b = 1; b < RNICE_HISTOGRAM_BUCKETS; b++) {
		cr_expect_eq(rnice_histogram_bucket(rnice_histogram_lower(b)), b);
		cr_expect_eq(rnice_histogram_bucket(rnice_histogram_lower(b) - 1), b - 1);
	}
}

Test(histogram, no_bucket_is_wider_than_a_quarter_of_its_lower_bound)
{
	for (unsigned b = 1; b < RNICE_HISTOGRAM_BUCKETS; b++)
		cr_expect_leq(rnice_histogram_lower(b + 1) - rnice_histogram_lower(b),
			      rnice_histogram_lower(b) / 4);
}

Test(histogram, ten_seconds_are_well_within_the_range)
{
	cr_expect_lt(rnice_histogram_bucket(UINT64_C(10000000000)), LAST);
}

Test(histogram, the_largest_value_is_in_the_last_bucket)
{
	cr_expect_eq(rnice_histogram_bucket(UINT64_MAX), LAST);
}

Test(histogram, bounds_beyond_the_last_bucket_stay_at_its_end)
{
	cr_expect_eq(rnice_histogram_lower(UINT32_MAX),
		     rnice_histogram_lower(RNICE_HISTOGRAM_BUCKETS));
}

Test(percentile, of_nothing_is_zero)
{
	cr_expect_eq(rnice_histogram_percentile(buckets, 500000), 0);
}

Test(percentile, of_one_value_is_the_upper_bound_of_its_bucket)
{
	record(1000);
	cr_expect_eq(rnice_histogram_percentile(buckets, 500000), 1024);
}

Test(percentile, of_a_full_bucket_is_spread_over_it)
{
	buckets[rnice_histogram_bucket(1024)] = 4; /* [1024, 1280) */
	cr_expect_eq(rnice_histogram_percentile(buckets, 250000), 1024 + 64);
	cr_expect_eq(rnice_histogram_percentile(buckets, 1000000), 1280);
}

Test(percentile, tells_the_tail_from_the_body)
{
	for (int i = 0; i < 990; i++)
		record(2000);
	for (int i = 0; i < 10; i++)
		record(1000000);
	cr_expect_lt(rnice_histogram_percentile(buckets, 990000), 2500);
	cr_expect_gt(rnice_histogram_percentile(buckets, 990001), 800000);
}

Test(percentile, zero_means_the_least_value)
{
	record(5000);
	record(100000);
	cr_expect_leq(rnice_histogram_percentile(buckets, 0), 5000 * 5 / 4);
}

Test(percentile, above_one_million_counts_as_one_million)
{
	record(5000);
	record(100000);
	cr_expect_eq(rnice_histogram_percentile(buckets, UINT32_MAX),
		     rnice_histogram_percentile(buckets, 1000000));
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

Test(percentile, is_between_four_fifths_and_five_quarters_of_the_truth)
{
	enum { N = 10000 };
	static uint64_t values[N];
	uint64_t state = 1;

	for (int i = 0; i < N; i++) {
		values[i] = 64 + next_value(&state);
		record(values[i]);
	}
	qsort(values, N, sizeof(values[0]), compare);
	for (int i = 1; i <= N; i++) {
		uint64_t truth = values[i - 1];
		uint64_t told = rnice_histogram_percentile(buckets, (uint32_t)i * 100);

		cr_assert(told * 5 >= truth * 4 && told * 4 <= truth * 5, "%d", i);
	}
}

Test(percentile, never_falls_as_the_rank_rises)
{
	uint64_t state = 7, last = 0, now;

	for (int i = 0; i < 1000; i++)
		record(next_value(&state));
	for (uint32_t ppm = 0; ppm <= 1000000; ppm += 100) {
		now = rnice_histogram_percentile(buckets, ppm);
		cr_assert_geq(now, last);
		last = now;
	}
}

Test(percentile, survives_counters_that_hold_garbage)
{
	memset(buckets, 0xff, sizeof(buckets));
	cr_expect_eq(rnice_histogram_percentile(buckets, 1000000),
		     rnice_histogram_lower(RNICE_HISTOGRAM_BUCKETS));
}

Test(count, is_the_sum_of_the_buckets)
{
	for (int i = 0; i < 1000; i++)
		record((uint64_t)i * i);
	cr_expect_eq(rnice_histogram_count(buckets), 1000);
}

Test(count, stops_at_the_largest_number)
{
	memset(buckets, 0xff, sizeof(buckets));
	cr_expect_eq(rnice_histogram_count(buckets), UINT64_MAX);
}
