/* SPDX-License-Identifier: BSD-2-Clause */
#include "test_segment.h"

#include "scheduler/bucket.h"

#define T0 (100 * SEC)

/* Take @bytes whenever it is allowed, as told by wait, for @ns; how much that was. */
static uint64_t take_for(struct rnice_bucket *b, uint64_t bytes, uint64_t start, uint64_t ns)
{
	uint64_t now = start, sum = 0, wait;

	while (now <= start + ns) {
		wait = rnice_bucket_wait(b, now);
		if (wait) {
			now += wait;
			continue;
		}
		cr_assert(rnice_bucket_take(b, bytes, now));
		sum += bytes;
	}
	return sum;
}

Test(bucket, without_a_rate_everything_goes)
{
	struct rnice_bucket b;

	rnice_bucket_init(&b, 0);
	for (int i = 0; i < 1000; i++)
		cr_expect(rnice_bucket_take(&b, UINT64_MAX / 2, T0));
	cr_expect_eq(rnice_bucket_wait(&b, T0), 0);
}

Test(bucket, an_hour_is_exact_to_one_take_at_any_rate)
{
	static const uint64_t rate[] = {1000, 999983, 12500000, 1000000007, 50000000000};

	for (size_t i = 0; i < sizeof(rate) / sizeof(rate[0]); i++) {
		uint64_t bytes = rate[i] / 100 + 1, sum, exact = rate[i] * 3600;
		struct rnice_bucket b;

		rnice_bucket_init(&b, rate[i]);
		sum = take_for(&b, bytes, T0, 3600 * SEC);
		cr_expect_geq(sum, exact, "rate %lu", rate[i]);
		cr_expect_leq(sum, exact + bytes, "rate %lu", rate[i]);
	}
}

Test(bucket, small_takes_at_400_gbit_lose_nothing_to_rounding)
{
	struct rnice_bucket b;
	uint64_t sum;

	rnice_bucket_init(&b, 50000000000);
	sum = take_for(&b, 4096, T0, SEC / 100);
	/* wait rounds up to 1 ns, which the next take makes good: at most one is missing */
	cr_expect_geq(sum, 500000000 - 4096);
	cr_expect_leq(sum, 500000000 + 4096);
}

Test(bucket, an_idle_spell_saves_no_more_than_the_burst)
{
	struct rnice_bucket b;
	uint64_t sum = 0;

	rnice_bucket_init(&b, 1000000000);
	cr_assert(rnice_bucket_take(&b, 1, T0));
	while (rnice_bucket_take(&b, 4096, T0 + 3600 * SEC))
		sum += 4096;
	cr_expect_leq(sum, b.burst + 4096);
	cr_expect_geq(sum, b.burst);
}

Test(bucket, centuries_of_idling_at_the_highest_rate_do_not_overflow)
{
	struct rnice_bucket b;

	rnice_bucket_init(&b, UINT64_C(1250000000000));
	for (uint64_t year = 0; year < 500; year++) {
		uint64_t now = T0 + year * 365 * 86400 * SEC;

		cr_assert(rnice_bucket_take(&b, 1, now), "year %lu", year);
		cr_assert_leq(rnice_bucket_wait(&b, now), SEC);
	}
}

Test(bucket, what_is_given_back_can_be_taken_again)
{
	struct rnice_bucket b;

	rnice_bucket_init(&b, 1000000);
	cr_assert(rnice_bucket_take(&b, 100000, T0));
	cr_expect_gt(rnice_bucket_wait(&b, T0), 0);
	rnice_bucket_return(&b, 100000);
	cr_expect_eq(rnice_bucket_wait(&b, T0), 0);
}

Test(bucket, a_clock_that_goes_back_a_little_is_survived)
{
	struct rnice_bucket b;

	rnice_bucket_init(&b, 1000000);
	cr_assert(rnice_bucket_take(&b, 100, T0));
	cr_expect_not(rnice_bucket_take(&b, 100, T0 - MSEC));
	cr_expect(rnice_bucket_take(&b, 100, T0 + MSEC));
}
