/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which doorbell register gets the next QP. Pure arithmetic: knows no verbs, makes no system call.
 *
 * A "door" is a register that rnice reserved, by way of a thread domain; a "native" QP rings one
 * that the driver chose. A QP cannot move once it is made, so all that can be decided is where the
 * next one goes, from what is known of the threads: who made which QP, and who was seen to post.
 *
 * Threads are numbers below 64 that the caller deals out; the last one may stand for several.
 *
 *	call      may run beside
 *	posted    all; relaxed atomics
 *	the rest  posted; otherwise one at a time
 */
#ifndef RNICE_UAR_H
#define RNICE_UAR_H

#include <stdint.h>

#include "config/config.h"

/* Per context. libmlx5 cannot make more than 1024 in one. */
#define RNICE_UAR_DOORS 256

enum { RNICE_UAR_NATIVE = -1, RNICE_UAR_NEW = -2 };

struct rnice_uar_door {
	uint32_t qps;
	uint64_t makers;  /* threads that made QPs here */
	uint64_t posters; /* threads seen to post here */
};

struct rnice_uar {
	enum rnice_uar_mode mode;
	uint32_t cpus;	 /* of the NIC's NUMA node */
	uint32_t doors;	 /* how many of door[] exist; they stay */
	uint32_t native; /* QPs alive where the driver put them */
	uint64_t makers; /* threads that made QPs, whichever register */
	uint64_t posters;
	uint64_t own;	/* posted to a QP of their own making */
	uint64_t given; /* made QPs that others post to */
	struct rnice_uar_door door[RNICE_UAR_DOORS];
};

/*
 * Where the QP goes that @thread is about to make: a door's index, RNICE_UAR_NEW (a further door;
 * only if @left), or RNICE_UAR_NATIVE. @left: how many further doors could be had.
 */
int rnice_uar_pick(const struct rnice_uar *u, unsigned thread, uint32_t left);

/* It was made there; for a door just opened, u->doors is one more. */
void rnice_uar_placed(struct rnice_uar *u, int door, unsigned thread);
/* It was destroyed. */
void rnice_uar_gone(struct rnice_uar *u, int door);
/* @thread posted to a QP that @maker made; once per thread and QP is enough. */
void rnice_uar_posted(struct rnice_uar *u, int door, unsigned maker, unsigned thread);
/* The threads in the mask are gone, their numbers will be dealt out again. */
void rnice_uar_forget_threads(struct rnice_uar *u, uint64_t mask);

/* How many doors `balanced` and `auto` spread the QPs over whose posters are not known. */
uint32_t rnice_uar_limit(const struct rnice_uar *u, uint32_t left);

#endif
