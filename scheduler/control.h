/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control loop of one device as arithmetic: what the tick saw goes in, the rules for the
 * next millisecond come out. No clock, no shared memory, no side effect: tests and the
 * simulation call it as the tick does.
 *
 *	            latency posts seen            none for the hold time
 *	  OPEN  ------------------------>  PROTECTED  ---------------------->  OPEN
 *
 * OPEN: bulk runs at native speed. The window is RNICE_OPEN_NS of measured service (8 ms),
 * reached by doubling; a chunk is 1 ms of it, within [MTU, 1 MiB]. So a latency program that
 * starts finds at most about 10 ms of bytes before it: the window, one tick until it is seen,
 * one chunk.
 *
 * PROTECTED: a chunk is half of preempt_ns of measured service, within [MTU, 1 MiB], and the
 * window is the least number of chunks that keeps the port busy, found by trials. On a slow
 * port, where one packet takes longer than preempt_ns, bulk is held just below full speed, so
 * that no queue stands. See control.c and pace.h.
 */
#ifndef RNICE_CONTROL_H
#define RNICE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/pace.h"

#define RNICE_CHUNK_MAX (1U << 20)
#define RNICE_MTU_DEFAULT 4096U
#define RNICE_OPEN_NS 8000000U	      /* bytes in the NIC with no latency program about */
#define RNICE_HOLD_NS 100000000U      /* protected for so long after the last latency post ... */
#define RNICE_HOLD_MAX_NS 2500000000U /* ... or longer for one that comes back periodically */
#define RNICE_TICK_NS 1000000U

/* What a tick found. */
struct rnice_control_in {
	uint64_t now;
	uint64_t done;	   /* bytes served since the tick before */
	uint64_t inflight; /* bytes in the NIC */
	uint64_t stayed; /* paced: the sum over @staying bytes of their time in the NIC, 1024 ns */
	uint64_t staying;
	uint64_t pieces;     /* ... of so many chunks or uncut messages */
	uint64_t preempt_ns; /* the least of the processes that have work */
	uint64_t given;	     /* the largest window that was given to one of them, 0: none */
	uint32_t mtu;	     /* the largest of theirs; 0 unknown */
	bool automatic;	     /* one of them has no window given */
	bool active;	     /* a latency QP posted since the tick before */
	bool backlog;	     /* somebody has more to send */
};

/* What every process asks by. */
struct rnice_rules {
	uint64_t window;    /* bytes in the NIC, for those that were not given another */
	uint64_t total;	    /* the largest window of those that ask: a limit for all together */
	uint32_t slack_kib; /* how far one may get ahead of another that was refused */
	uint32_t chunk;
	uint16_t stale_ms; /* bytes that have not moved for so long do not count any more */
	uint16_t asked_us; /* who has not asked for so long does not compete any more */
	uint16_t retry_us; /* the service time of a chunk, about */
	uint16_t paced;	   /* chunks go by the clock, too */
};

/* Kept between ticks, in the segment: whatever is in it, a step brings it back to sense. */
struct rnice_control {
	uint64_t at;   /* of the last step; 0: never */
	uint64_t rate; /* bytes/s that the device can serve; 0: not known yet */
	uint64_t firm; /* the rate was seen over a whole span */
	uint64_t window;
	uint64_t chunk;
	uint64_t backlog; /* was there some at the last step? */
	/* the span over which a rate is being measured */
	uint64_t span_at, span_bytes, span_inflight, span_busy;
	/* latency programs */
	uint64_t seen, hold;
	/* protected: chunks in the window, as a step of the ladder; the trial of another step */
	uint64_t step, trial, trial_step, trial_at, trial_gap, arm_left, arm_skip;
	uint64_t arm_bytes[2], arm_ns[2];
	uint64_t down, stride; /* the next trial */
	uint64_t pace;	       /* bytes/s to hold bulk to; 0: the window alone does */
	struct rnice_pace slow;
};
#define RNICE_CONTROL_WORDS (sizeof(struct rnice_control) / sizeof(uint64_t))

void rnice_control_step(struct rnice_control *c, const struct rnice_control_in *in,
			struct rnice_rules *out);

/* Whether the state @c at @now means PROTECTED. */
bool rnice_control_protected(const struct rnice_control *c, uint64_t now);

/* a * b / c rounded down, no overflow on the way; UINT64_MAX when it does not fit or c is 0. */
static inline uint64_t rnice_muldiv(uint64_t a, uint64_t b, uint64_t c)
{
	unsigned __int128 r;

	if (c == 0)
		return UINT64_MAX;
	r = (unsigned __int128)a * b / c;
	return r > UINT64_MAX ? UINT64_MAX : (uint64_t)r;
}

#endif
