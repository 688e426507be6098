/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * churn: QPs that live only for a while, on a CQ that other threads poll meanwhile. A life of a QP
 * goes from its connection to the ERR, RESET or destroy that ends it.
 *
 * A wr_id names the QP, its life and the WR: that is what a poller knows a completion by.
 */
#ifndef CHURN_H
#define CHURN_H

#include "verbs_util.h"

#include <pthread.h>

#define DEPTH 32
#define MAX_LIFE 4096 /* WRs in one life */
#define MAX_LIVES 256

struct life {
	struct ibv_mw *mw;
	uint8_t *state;	 /* of each WR: WR_POSTED, then what came; atomically */
	uint32_t posted; /* by the poster */
	uint32_t wanted; /* signaled ones among them */
	bool ends_signaled;
	uint32_t flushed; /* atomically, as the next */
	uint32_t done;	  /* completions */
	uint32_t last;	  /* the one after the last that completed; one poller only */
};

enum { WR_POSTED = 1, WR_SIGNALED = 2, WR_DONE = 4 };

struct owner {
	pthread_t thread;
	struct vu_qp q, peer;
	uint32_t id;
	uint32_t lives;
	struct life life[MAX_LIVES];
	struct vu_rng r;
	bool stop;  /* posting; atomically */
	long pause; /* ns before its ERR */
};

struct churn {
	struct vu_dev dev[2];
	struct vu_mem mem[2];
	struct vu_cq scq, rcq[2];
	uint64_t lives, max_size;
	enum vu_post api;
	enum vu_poll poll;
	bool one_poller;
};
extern struct churn ch;

/* Starts the next life of @o on a connected QP. */
struct life *life_begin(struct owner *o);
/* 0, or why it was refused. */
int life_post(struct owner *o, struct life *l);
/* All that were posted are done; errors are expected if @may_flush. */
void life_end(struct owner *o, struct life *l, bool may_flush);
void owner_make(struct owner *o);
void owner_connect(struct owner *o);
void owner_free(struct owner *o);

void start_thread(pthread_t *t, void *(*fn)(void *), void *arg);

/* churn_ud.c: destroys that fail, and address handles that go while QPs do. */
void churn_ud(void);

#endif
