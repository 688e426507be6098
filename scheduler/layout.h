/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is where in the segment. Private to scheduler/; everybody else uses segment.h and port.h.
 *
 * Who writes what (everybody may read everything):
 *
 *	record          writer                                     how
 *	header          the creator, before the file has a name    plain
 *	device.key      whoever needs the device first             CAS 0 -> hash of name
 *	device.name     each process that attaches, the same       relaxed
 *	device.members  a process its bit, the tick a dead one's   atomic or, and
 *	device.tick     whoever wins the tick                      CAS old -> now
 *	device.due      whoever was admitted                       CAS
 *	device, rest    the winner of the tick                     relaxed
 *	slot.owner      claim, reclaim, release                    CAS
 *	slot, rest      the owner; a reclaimer, until it is free   relaxed
 *	activity line   the thread that posts to its QP            relaxed load, store
 *	flow            the owner's threads                        atomic add
 *	flow.doorbells  the owner's threads                        atomic add, sub
 *	slot.reg        the owner's threads, one word each         relaxed store
 *
 * What excludes what: nothing. A slot has one owner at a time because owner changes by CAS only.
 * A winner of the tick that falls asleep may overlap with the next one: they then mix their
 * words, which control.c clamps and the tick after replaces.
 *
 * Not trusted: sizes, indices and stamps are checked or clamped where they are read.
 */
#ifndef RNICE_LAYOUT_H
#define RNICE_LAYOUT_H

#include "scheduler/control.h"
#include "scheduler/segment.h"

#define SHM_MAGIC "rnice/1\n"
#define SHM_VERSION 2

#define SHM_LINE 64
#define SHM_LINES 64 /* activity lines of a process: as many as a mask has bits */
#define SHM_MEMBER_WORDS (RNICE_MAX_PROCS / 64)
#define SHM_NAME_WORDS (RNICE_DEVICE_NAME / 8)

#define shm_line __attribute__((aligned(SHM_LINE)))

struct shm_header {
	char magic[8];
	uint32_t version;
	uint32_t layout; /* SHM_LAYOUT of the creator */
	uint64_t size;
	uint64_t timens; /* stamps in here are CLOCK_MONOTONIC of this time namespace; 0 unknown */
} shm_line;

/* Counts posts of one latency QP, or of several when lines run out. */
struct shm_activity {
	uint64_t posts;
	uint64_t device; /* index + 1; 0 = free */
} shm_line;

/* One process on one device. */
struct shm_flow {
	/* line 1: read by every process that asks for bytes */
	uint64_t taken; /* bytes given to the NIC, ever */
	uint64_t done;	/* bytes that left it again */
	uint64_t lost;	/* of these, in error: they say nothing about the service rate */
	uint64_t lift;	/* virtual time = taken + lift */
	uint64_t moved; /* when bytes last went in or out */
	uint64_t asked; /* when it last asked, or was told of a completion */
	uint32_t want;	/* FLOW_* */
	uint32_t mtu;
	uint64_t lines; /* which activity lines count for this device */
	/* line 2: activity beyond the lines, and of lines given back */
	uint64_t posts;
	uint64_t retired;
	uint64_t used;	    /* 1: attached; 2: was */
	uint64_t stayed;    /* sum over bytes of how long they were in the NIC, 1024 ns, and ... */
	uint64_t staying;   /* ... of which bytes: those that were paced */
	uint64_t pieces;    /* ... in so many pieces */
	uint64_t doorbells; /* registers reserved: this process's part of the host's budget */
	uint64_t spare;
	/* statistics */
	uint64_t counter[RNICE_CTR_COUNT] shm_line;
	uint64_t latency[RNICE_LATENCY_BUCKETS] shm_line;
} shm_line;

#define FLOW_BACKLOG 1U /* has bytes queued */
#define FLOW_OWED 2U	/* was refused though it held less than its share */

struct shm_slot {
	/* line 1 */
	uint64_t owner; /* owner.h; 0 = free */
	uint64_t ready; /* equal to owner once the rest is filled in */
	uint64_t pidns; /* inode of the owner's pid namespace */
	uint64_t start; /* start time of the owner, clock ticks since boot; 0 unknown */
	uint64_t beat;	/* when the owner last showed life, for other pid namespaces */
	uint64_t comm[2];
	uint64_t spare;
	/* line 2 */
	uint64_t cls, policy, preempt_ns, chunk, window, rate;
	uint64_t spare2;
	uint64_t uar;
	uint64_t reg[RNICE_MAX_REGISTERS] shm_line; /* doorbell registers, packed: register.c */
	struct shm_activity line[SHM_LINES];
	struct shm_flow flow[RNICE_MAX_DEVICES];
} shm_line;

/* What the last tick saw of a slot. */
struct shm_watch {
	uint64_t posts, done, stayed, staying, pieces;
	uint64_t checked; /* when somebody last looked whether the owner lives */
	uint64_t spare[2];
};

struct shm_device {
	uint64_t key; /* hash of the name; 0 = free. Never changes again. */
	uint64_t name[SHM_NAME_WORDS] shm_line;
	/* one line: what a process reads each time it asks */
	uint64_t members[SHM_MEMBER_WORDS] shm_line;
	struct rnice_rules rules;
	/* one line: the clock that chunks go by, if rules.paced */
	uint64_t pace shm_line; /* bytes/s */
	uint64_t due;		/* when the next chunk may go */
	uint64_t trip;		/* the shortest stay of a chunk in the NIC, ns; 0: not known */
	uint64_t rate;		/* bytes/s that the device can serve, as far as known */
	/* the tick's own */
	uint64_t tick shm_line; /* when the last one began; CAS claims the next */
	uint64_t ticked;	/* when the last one published */
	uint64_t vclock;	/* virtual time that a process waking up starts from */
	uint64_t cursor;	/* where the search for activity goes on */
	uint64_t control[RNICE_CONTROL_WORDS] shm_line;
	struct shm_watch watch[RNICE_MAX_PROCS] shm_line;
} shm_line;

struct shm {
	struct shm_header header;
	struct shm_device device[RNICE_MAX_DEVICES];
	struct shm_slot slot[RNICE_MAX_PROCS];
};

/* Changes whenever a record changes size, even if somebody forgot SHM_VERSION. */
#define SHM_LAYOUT                                                                          \
	((uint32_t)(sizeof(struct shm) * 2654435761U ^ sizeof(struct shm_device) * 40503U ^ \
		    sizeof(struct shm_flow) * 69069U ^ RNICE_CTR_COUNT * 97U ^              \
		    RNICE_CONTROL_WORDS))

struct rnice_segment {
	struct shm *shm;
	bool writable;
};

_Static_assert(sizeof(struct shm_activity) == SHM_LINE, "one writer per line");
_Static_assert(__builtin_offsetof(struct shm_flow, posts) == SHM_LINE, "one line to ask");
_Static_assert(__builtin_offsetof(struct shm_device, pace) -
			       __builtin_offsetof(struct shm_device, members) ==
		       SHM_LINE,
	       "one line of rules");

#endif
