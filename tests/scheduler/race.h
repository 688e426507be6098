/* SPDX-License-Identifier: BSD-2-Clause */
/* What the race programs share. Plain programs: Criterion does not start under ThreadSanitizer. */
#ifndef RACE_H
#define RACE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/atomic.h"
#include "scheduler/port.h"

#define SEC UINT64_C(1000000000)

static inline uint64_t clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static inline void require(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "FAILED: %s\n", what);
	_exit(1);
}

static inline struct rnice_segment *fresh_segment(const char *program)
{
	struct rnice_segment *seg;
	char name[64], why[200] = "";

	snprintf(name, sizeof(name), "/dev/shm/rnice-%s-%u", program, (unsigned)getpid());
	require(!rnice_segment_open(name, true, &seg, why, sizeof(why)), why);
	unlink(name);
	return seg;
}

/* Each call is a process of its own to the segment, though all run in this one. */
static inline struct rnice_proc *join(struct rnice_segment *seg, uint64_t window)
{
	struct rnice_proc_info info = {.cls = RNICE_CLASS_AUTO,
				       .policy = RNICE_POLICY_PREEMPT,
				       .preempt_ns = 10000,
				       .window = window};
	struct rnice_proc *proc;

	require(!rnice_proc_join(seg, &info, &proc), "join");
	return proc;
}

#endif
