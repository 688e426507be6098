/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This process's side of the scheduler, and what the files of scheduler/ tell each other.
 *
 * A struct rnice_port exists once per process and device; its threads share it. What it keeps in
 * private memory is the truth about this process. The flow in the segment is published from it,
 * and mended when somebody else wrote there.
 */
#ifndef RNICE_PROC_H
#define RNICE_PROC_H

#include <time.h>

#include "scheduler/atomic.h"
#include "scheduler/bucket.h"
#include "scheduler/layout.h"
#include "scheduler/owner.h"
#include "scheduler/port.h"

struct rnice_port {
	struct rnice_proc *proc;
	struct shm_device *dev;
	struct shm_flow *flow;
	unsigned index; /* of the device */
	unsigned refs;	/* attach minus detach; 0: not in use */

	/* from the settings */
	uint32_t fixed_chunk;		 /* 0: the rules' */
	uint64_t fixed_window;		 /* 0: the rules' */
	bool observe;			 /* everything is admitted */
	uint64_t self[SHM_MEMBER_WORDS]; /* this process's bit among the members */

	/* changed by any thread, atomically */
	uint64_t inflight shm_line;	   /* bytes admitted and not done: the truth */
	uint64_t upkeep_at;		   /* when this process last looked after itself */
	uint64_t skew, skew_at, skew_seen; /* the flow in the segment is wrong by, since */
	uint64_t pay_until;		   /* after a message larger than its share, see port.c */
	uint64_t blurred; /* so many chunks in a row may have stayed for any time */
	uint32_t backlog; /* as told by rnice_port_backlog() */
	uint32_t mtu;
	uint32_t lost; /* the slot is somebody else's: write there no more */
};

struct rnice_proc {
	struct rnice_segment *seg;
	struct shm_slot *slot;
	unsigned index; /* of the slot */
	struct rnice_owner me;
	struct rnice_proc_info info;
	uint64_t lines; /* mask of activity lines given out */
	uint64_t regs;	/* mask of register records given out */
	struct rnice_bucket bucket;
	struct rnice_port port[RNICE_MAX_DEVICES];
};

/* For what nobody gave a time for: signs of life, statistics. */
static inline uint64_t rnice_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Is the slot still this process's? */
static inline bool rnice_proc_owns(const struct rnice_proc *proc)
{
	return load_relaxed(&proc->slot->owner) == proc->me.word;
}

/* A number of bytes in the NIC, 0 if it makes no sense: garbage, or more given back than taken. */
static inline uint64_t rnice_sane_bytes(uint64_t bytes)
{
	return bytes < UINT64_C(1) << 40 ? bytes : 0;
}

/* Bytes in the NIC by @flow. */
static inline uint64_t rnice_flow_inflight(const struct shm_flow *flow)
{
	/*
	 * A2 acquire, pairs with A1 in rnice_port_done(). done first: bytes that come and go
	 * between the two loads then count as in the NIC, never as less than nothing.
	 */
	uint64_t done = load_acquire(&flow->done);

	return rnice_sane_bytes(load_seq_cst(&flow->taken) - done);
}

/* Was @stamp set within @limit before @now? Threads' clocks may differ by a little. */
static inline bool rnice_fresh(uint64_t stamp, uint64_t now, uint64_t limit)
{
	return now - stamp + 1000000 < limit + 1000000;
}

/* Virtual time: bytes served, shifted so that an idle spell earns nothing. */
static inline uint64_t rnice_flow_vtime(const struct shm_flow *flow)
{
	return load_relaxed(&flow->taken) + load_relaxed(&flow->lift);
}

static inline bool rnice_is_member(const struct shm_device *dev, unsigned slot)
{
	return load_relaxed(&dev->members[slot / 64]) >> (slot % 64) & 1;
}

/* Free the slot of @dead, found there by the caller. False: somebody else was faster. */
bool rnice_proc_reap(struct rnice_segment *seg, const struct rnice_owner *me, unsigned slot,
		     uint64_t dead);

/* The control loop's turn at @now: look at everybody, write new rules. Caller won the tick. */
void rnice_tick(struct rnice_port *port, uint64_t now);

#endif
