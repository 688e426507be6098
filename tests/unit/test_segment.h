/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the scheduler share: a segment of one's own, children that are waited for. */
#ifndef TEST_SEGMENT_H
#define TEST_SEGMENT_H

#include <criterion/criterion.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/proc.h"

#define USEC UINT64_C(1000)
#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

static inline uint64_t clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC)};

	nanosleep(&ts, NULL);
}

/* Tests end without giving anything back; reachable from here it is no leak to a sanitizer. */
static inline void *keep(void *p)
{
	static void *kept[4096];
	static unsigned n;

	return kept[n++ % 4096] = p;
}

/* A name that no other test has; the file is the caller's to remove. */
static inline const char *fresh_name(void)
{
	static char name[64];
	static unsigned n;

	snprintf(name, sizeof(name), "/dev/shm/rnice-test-%u-%u", (unsigned)getpid(), n++);
	return name;
}

/* A segment without a name; children of the test share it by fork. */
static inline struct rnice_segment *fresh_segment(void)
{
	const char *name = fresh_name();
	struct rnice_segment *seg = NULL;
	char why[200] = "";

	cr_assert_eq(rnice_segment_open(name, true, &seg, why, sizeof(why)), 0, "%s", why);
	unlink(name);
	return keep(seg);
}

static inline struct rnice_proc *join_as(struct rnice_segment *seg, struct rnice_proc_info info)
{
	struct rnice_proc *proc = NULL;

	if (!info.preempt_ns)
		info.preempt_ns = 10 * USEC;
	cr_assert_eq(rnice_proc_join(seg, &info, &proc), 0);
	return keep(proc);
}

/* A bulk process with @info's sizes under the policy preempt, on device "dev". */
static inline struct rnice_port *bulk_port(struct rnice_segment *seg, struct rnice_proc_info info)
{
	struct rnice_port *port = NULL;

	info.cls = RNICE_CLASS_BULK;
	if (info.policy == RNICE_POLICY_OFF)
		info.policy = RNICE_POLICY_PREEMPT;
	cr_assert_eq(rnice_port_attach(join_as(seg, info), "dev", &port), 0);
	return port;
}

/* Memory that forked children share. */
static inline void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

/* The child's exit status; 128 + signal if it was killed. */
static inline int wait_for(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Small and reproducible. */
static inline uint64_t draw(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % below;
}

#endif
