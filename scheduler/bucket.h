/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A token bucket in bytes and nanoseconds, for one process; its threads share it.
 *
 *	allowance  = rate x time since the start, computed afresh each time: no rounding adds up
 *	spent      = bytes taken; after an idle spell lifted to allowance - burst
 *	may take   <=> spent <= allowance
 *
 * A take may be larger than what is left: the debt delays the next one. So over any time t a
 * process gets at most rate x t + burst + one take.
 *
 * Threads: every call from any. Times may go back a little between threads.
 */
#ifndef RNICE_BUCKET_H
#define RNICE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct rnice_bucket {
	uint64_t rate;	/* bytes/s; 0: no limit */
	uint64_t burst; /* bytes */
	uint64_t start; /* ns; 0 until the first use */
	uint64_t spent;
};

/* The longest burst after an idle spell is 1 ms of @rate, and no less than 64 KiB. */
void rnice_bucket_init(struct rnice_bucket *b, uint64_t rate);
/* 0: may take now. Otherwise ns to wait until it may, if nobody else takes. */
uint64_t rnice_bucket_wait(struct rnice_bucket *b, uint64_t now);
/* False: nothing was taken. */
bool rnice_bucket_take(struct rnice_bucket *b, uint64_t bytes, uint64_t now);
/* Give back what was taken and not used. */
void rnice_bucket_return(struct rnice_bucket *b, uint64_t bytes);

#endif
