/* SPDX-License-Identifier: BSD-2-Clause */
#include "telemetry/histogram.h"

#define SUBS (1U << RNICE_HISTOGRAM_SUB_BITS)
#define PPM 1000000U

/* Wide enough for the sum of any 128 counters, and for that times a million. */
typedef unsigned __int128 wide;

uint64_t rnice_histogram_lower(unsigned bucket)
{
	unsigned octave;

	if (bucket == 0)
		return 0;
	if (bucket > RNICE_HISTOGRAM_BUCKETS)
		bucket = RNICE_HISTOGRAM_BUCKETS;
	octave = (bucket - 1) / SUBS + RNICE_HISTOGRAM_FIRST_BITS;
	return (uint64_t)(SUBS + (bucket - 1) % SUBS) << (octave - RNICE_HISTOGRAM_SUB_BITS);
}

static wide total(const uint64_t *buckets)
{
	wide sum = 0;

	for (unsigned i = 0; i < RNICE_HISTOGRAM_BUCKETS; i++)
		sum += buckets[i];
	return sum;
}

uint64_t rnice_histogram_count(const uint64_t buckets[RNICE_HISTOGRAM_BUCKETS])
{
	wide sum = total(buckets);

	return sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
}

/* Where the @nth of @count evenly spread values of @bucket lies; 1 <= @nth <= @count. */
static uint64_t interpolate(unsigned bucket, wide nth, wide count)
{
	uint64_t lower = rnice_histogram_lower(bucket);
	uint64_t width = rnice_histogram_lower(bucket + 1) - lower;

	return lower + (uint64_t)(width * nth / count);
}

uint64_t rnice_histogram_percentile(const uint64_t buckets[RNICE_HISTOGRAM_BUCKETS], uint32_t ppm)
{
	wide sum = total(buckets);
	wide rank, before = 0;

	if (sum == 0)
		return 0;
	if (ppm > PPM)
		ppm = PPM;
	rank = (sum * ppm + PPM - 1) / PPM; /* of the value asked for, counting from 1 */
	if (rank == 0)
		rank = 1;
	for (unsigned i = 0; i < RNICE_HISTOGRAM_BUCKETS; i++) {
		if (before + buckets[i] >= rank)
			return interpolate(i, rank - before, buckets[i]);
		before += buckets[i];
	}
	return rnice_histogram_lower(RNICE_HISTOGRAM_BUCKETS); /* not reached: rank <= sum */
}
