/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * churn: QPs go to ERR, to RESET and back, and away, while other threads post to their neighbours
 * (and to the very QP, as far as verbs allows it) and poll the CQ that all of them share.
 *
 * Every WR that was accepted completes exactly once unless its QP was reset or destroyed before,
 * and the neighbours notice nothing.
 */
#include "churn.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEADY 2 /* post on and on, undisturbed */
#define CHURN 2	 /* post, and end their own life */
#define VICTIM 1 /* posts, while another thread sets the QP to ERR */
#define OWNERS (STEADY + CHURN + VICTIM)
#define SLOT (64u << 10)

struct churn ch = {.lives = 40, .max_size = 20000, .api = VU_POST_MIXED, .poll = VU_POLL_MIXED};
static struct owner *owner[OWNERS];
static bool all_over; /* atomically */

/* ---- lives ---- */

struct life *life_begin(struct owner *o)
{
	struct life *l = &o->life[o->lives];

	vu_check(o->lives < MAX_LIVES, "too many lives");
	memset(l, 0, sizeof(*l));
	l->state = vu_alloc(MAX_LIFE);
	/* A bind that was flushed leaves the library with another key than the device. */
	l->mw = ibv_alloc_mw(ch.dev[0].pd, IBV_MW_TYPE_1);
	vu_check(l->mw, "ibv_alloc_mw: %s", strerror(errno));
	__atomic_store_n(&o->lives, o->lives + 1, __ATOMIC_RELEASE);
	return l;
}

/* It goes past whatever stands in a queue before it. */
static int post_bind(struct owner *o, uint64_t id, bool signaled)
{
	struct ibv_mw_bind bind = {.wr_id = id,
				   .send_flags = signaled ? IBV_SEND_SIGNALED : 0,
				   .bind_info = {.mr = ch.mem[0].mr,
						 .addr = (uintptr_t)ch.mem[0].p,
						 .length = SLOT,
						 .mw_access_flags = IBV_ACCESS_REMOTE_READ}};

	return ibv_bind_mw(o->q.qp, o->life[o->lives - 1].mw, &bind);
}

static int post_write(struct owner *o, uint64_t id, bool signaled)
{
	uint32_t len = (uint32_t)(vu_chance(&o->r, 80) ? vu_range(&o->r, 1, 500)
						       : vu_range(&o->r, 1, ch.max_size));
	struct ibv_sge sge = {(uintptr_t)ch.mem[0].p + o->id * SLOT, len, ch.mem[0].mr->lkey};
	struct ibv_send_wr wr, *bad = NULL;
	int err;

	wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, id, signaled ? IBV_SEND_SIGNALED : 0);
	vu_wr_remote(&wr, ch.mem[1].p + o->id * SLOT, ch.mem[1].mr->rkey);
	err = vu_qp_post(&o->q, &wr, &bad, ch.api == VU_POST_WR || vu_chance(&o->r, 50));
	vu_check(!err || bad == &wr, "a refused WR is not *bad_wr");
	return err;
}

int life_post(struct owner *o, struct life *l)
{
	uint64_t id = (uint64_t)o->id << 56 | (uint64_t)(o->lives - 1) << 32 | l->posted;
	bool signaled = vu_chance(&o->r, 70);
	int err;

	__atomic_store_n(&l->state[l->posted], signaled ? WR_POSTED | WR_SIGNALED : WR_POSTED,
			 __ATOMIC_RELEASE);
	err = vu_chance(&o->r, 5) ? post_bind(o, id, signaled) : post_write(o, id, signaled);
	if (err) {
		__atomic_store_n(&l->state[l->posted], 0, __ATOMIC_RELEASE);
		return err;
	}
	l->posted++;
	l->wanted += signaled;
	l->ends_signaled = signaled;
	return 0;
}

/* A queue of unsignaled WRs only is never seen to be empty. */
static void post_last(struct owner *o, struct life *l)
{
	while (!l->ends_signaled) {
		int err = life_post(o, l);

		vu_check(!err || err == ENOMEM, "posting: %s", strerror(err));
		if (err)
			sched_yield();
	}
}

static bool is_complete(const struct life *l)
{
	for (uint32_t i = 0; i < l->posted; i++)
		if ((__atomic_load_n(&l->state[i], __ATOMIC_ACQUIRE) & (WR_SIGNALED | WR_DONE)) ==
		    WR_SIGNALED)
			return false;
	return true;
}

void life_end(struct owner *o, struct life *l, bool may_flush)
{
	while (__atomic_load_n(&l->done, __ATOMIC_ACQUIRE) < l->wanted || !is_complete(l))
		sched_yield();
	vu_check(may_flush || !__atomic_load_n(&l->flushed, __ATOMIC_RELAXED),
		 "QP %u was never set to ERR, but WRs failed", o->id);
}

/* ---- polling ---- */

static void on_wc(const struct ibv_wc *wc)
{
	struct owner *o = owner[wc->wr_id >> 56 < OWNERS ? wc->wr_id >> 56 : 0];
	uint32_t n = wc->wr_id >> 32 & 0xffffff, i = (uint32_t)wc->wr_id;
	struct life *l = &o->life[n];
	uint8_t old;

	vu_check(wc->wr_id >> 56 == o->id && n < __atomic_load_n(&o->lives, __ATOMIC_ACQUIRE) &&
			 i < MAX_LIFE,
		 "wr_id %#" PRIx64 " was never posted", wc->wr_id);
	vu_check(wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR,
		 "wr_id %#" PRIx64 ": %s", wc->wr_id, ibv_wc_status_str(wc->status));
	old = __atomic_fetch_or(&l->state[i], WR_DONE, __ATOMIC_ACQ_REL);
	vu_check(old & WR_POSTED, "wr_id %#" PRIx64 " was never posted", wc->wr_id);
	vu_check(!(old & WR_DONE), "wr_id %#" PRIx64 " completed twice", wc->wr_id);
	vu_check(old & WR_SIGNALED || wc->status != IBV_WC_SUCCESS,
		 "wr_id %#" PRIx64 " was not signaled", wc->wr_id);
	if (ch.one_poller) {
		vu_check(i >= l->last, "wr_id %#" PRIx64 " after %u", wc->wr_id, l->last - 1);
		vu_check(!l->flushed || wc->status != IBV_WC_SUCCESS,
			 "wr_id %#" PRIx64 " succeeded after a flush", wc->wr_id);
		l->last = i + 1;
	}
	if (wc->status != IBV_WC_SUCCESS)
		__atomic_add_fetch(&l->flushed, 1, __ATOMIC_RELAXED);
	if (old & WR_SIGNALED)
		__atomic_add_fetch(&l->done, 1, __ATOMIC_RELEASE);
}

static void *poll_all(void *arg)
{
	struct vu_rng r = {vu.seed + (uintptr_t)arg};
	struct ibv_wc wc[8];
	int n;

	while (!__atomic_load_n(&all_over, __ATOMIC_ACQUIRE)) {
		n = vu_cq_poll(&ch.scq, 8, wc, vu_poll_ex(ch.poll, &r));
		vu_check(n >= 0, "polling: %d", n);
		for (int i = 0; i < n; i++)
			on_wc(&wc[i]);
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* Any size that holds what may be in it; the pollers are inside their batches meanwhile. */
static void *resize_all(void *arg)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct vu_rng r = {vu.seed};
	int err;

	(void)arg;
	while (!__atomic_load_n(&all_over, __ATOMIC_ACQUIRE)) {
		err = ibv_resize_cq(ch.scq.cq, OWNERS * DEPTH * (int)vu_range(&r, 2, 8));
		vu_check(!err, "ibv_resize_cq: %s", strerror(err));
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/* ---- owners ---- */

static void make_qp(struct vu_qp *q, int side)
{
	struct ibv_qp_init_attr init = {.send_cq = side ? ch.rcq[1].cq : ch.scq.cq,
					.recv_cq = ch.rcq[side].cq,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	vu_qp_create(q, &ch.dev[side], &init, side ? VU_POST_SEND : ch.api);
}

void owner_make(struct owner *o)
{
	make_qp(&o->q, 0);
	make_qp(&o->peer, 1);
}

void owner_connect(struct owner *o)
{
	struct vu_link link = vu_link_default(&ch.dev[0]);

	vu_connect(&ch.dev[0], o->q.qp, &ch.dev[1], o->peer.qp, &link);
}

void owner_free(struct owner *o)
{
	vu_qp_destroy(&o->q);
	vu_qp_destroy(&o->peer);
}

static void to_state(struct vu_qp *q, enum ibv_qp_state state)
{
	int err = vu_qp_to_state(q->qp, state);

	vu_check(!err, "ibv_modify_qp: %s", strerror(err));
}

static void reconnect(struct owner *o)
{
	to_state(&o->q, IBV_QPS_RESET);
	to_state(&o->peer, IBV_QPS_RESET);
	owner_connect(o);
}

static void post_some(struct owner *o, struct life *l, uint32_t n)
{
	int err;

	while (n--) {
		err = life_post(o, l);
		vu_check(!err || err == ENOMEM, "posting: %s", strerror(err));
		if (err)
			return;
	}
}

static void *post_steadily(void *arg)
{
	struct owner *o = arg;
	int err;

	for (uint64_t i = 0; i < ch.lives; i++) {
		struct life *l = life_begin(o);

		while (l->posted < 50) {
			err = life_post(o, l);
			vu_check(!err || err == ENOMEM, "posting: %s", strerror(err));
			if (err)
				sched_yield();
		}
		post_last(o, l);
		life_end(o, l, false);
	}
	return NULL;
}

/* Posts, and ends the life of its QP in one of the ways there are. */
static void *live_and_die(void *arg)
{
	struct owner *o = arg;

	for (uint64_t i = 0; i < ch.lives; i++) {
		struct life *l = life_begin(o);

		post_some(o, l, (uint32_t)vu_range(&o->r, 1, DEPTH));
		switch (vu_below(&o->r, 4)) {
		case 0: /* everything done */
			post_last(o, l);
			life_end(o, l, false);
			reconnect(o);
			break;
		case 1: /* the rest is flushed */
			to_state(&o->q, IBV_QPS_ERR);
			post_some(o, l, 3);
			life_end(o, l, true);
			reconnect(o);
			break;
		case 2: /* the rest is forgotten */
			reconnect(o);
			break;
		default:
			owner_free(o);
			owner_make(o);
			owner_connect(o);
		}
	}
	return NULL;
}

static void *set_to_error(void *arg)
{
	struct owner *o = arg;
	const struct timespec pause = {.tv_nsec = o->pause};

	nanosleep(&pause, NULL);
	to_state(&o->q, IBV_QPS_ERR);
	nanosleep(&pause, NULL);
	__atomic_store_n(&o->stop, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Another thread sets the QP to ERR: what was accepted is done or flushed, each once. */
static void *post_and_be_stopped(void *arg)
{
	struct owner *o = arg;
	pthread_t killer;
	int err;

	for (uint64_t i = 0; i < ch.lives; i++) {
		struct life *l = life_begin(o);

		o->stop = false;
		o->pause = (long)vu_below(&o->r, 1500000);
		start_thread(&killer, set_to_error, o);
		while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE) && l->posted < MAX_LIFE - 1) {
			err = life_post(o, l);
			vu_check(!err || err == ENOMEM, "posting: %s", strerror(err));
			if (err)
				sched_yield();
		}
		pthread_join(killer, NULL);
		life_end(o, l, true);
		reconnect(o);
	}
	return NULL;
}

/* ---- one arrangement ---- */

void start_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
	int err = pthread_create(t, NULL, fn, arg);

	vu_check(!err, "pthread_create: %s", strerror(err));
}

static void new_owner(uint32_t id)
{
	owner[id] = vu_alloc(sizeof(*owner[id]));
	owner[id]->id = id;
	owner[id]->r.state = vu.seed * 100 + id;
	owner_make(owner[id]);
	owner_connect(owner[id]);
}

static void forget_owner(uint32_t id)
{
	owner_free(owner[id]);
	for (uint32_t i = 0; i < owner[id]->lives; i++) {
		free(owner[id]->life[i].state);
		vu_check(!ibv_dealloc_mw(owner[id]->life[i].mw), "ibv_dealloc_mw");
	}
	free(owner[id]);
}

static void run(const char *what, int pollers, bool resized)
{
	static void *(*const role[OWNERS])(void *) = {post_steadily, post_steadily, live_and_die,
						      live_and_die, post_and_be_stopped};
	pthread_t helper[3];
	int helpers = 0;

	vu_at(what);
	ch.one_poller = pollers == 1;
	all_over = false;
	for (uint32_t i = 0; i < OWNERS; i++)
		new_owner(i);
	for (; helpers < pollers; helpers++)
		start_thread(&helper[helpers], poll_all, &helper[helpers]);
	if (resized)
		start_thread(&helper[helpers++], resize_all, NULL);
	for (uint32_t i = 0; i < OWNERS; i++)
		start_thread(&owner[i]->thread, role[i], owner[i]);
	for (uint32_t i = 0; i < OWNERS; i++)
		pthread_join(owner[i]->thread, NULL);
	__atomic_store_n(&all_over, true, __ATOMIC_RELEASE);
	while (helpers)
		pthread_join(helper[--helpers], NULL);
	for (uint32_t i = 0; i < OWNERS; i++) {
		vu_log("%s: QP %u lived %u times\n", what, i, owner[i]->lives);
		vu_note("the last time it posted %u\n", owner[i]->life[ch.lives - 1].posted);
		forget_owner(i);
	}
}

static void show(void)
{
	for (uint32_t i = 0; i < OWNERS; i++) {
		const struct owner *o = owner[i];
		const struct life *l = &o->life[o->lives - 1];

		fprintf(stderr, "QP %u: life %u, %u posted, %u signaled, %u done, %u flushed\n", i,
			o->lives, l->posted, l->wanted, l->done, l->flushed);
	}
}

int main(int argc, char **argv)
{
	const char *poll_name = "mixed", *api_name = "mixed";
	const struct vu_opt opts[] = {
		{"api", VU_OPT_STR, &api_name, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"poll", VU_OPT_STR, &poll_name, "how to poll: cq, ex (ibv_start_poll) or mixed"},
		{"lives", VU_OPT_NUM, &ch.lives, "of each QP"},
		{"max-size", VU_OPT_NUM, &ch.max_size, "longest WRITE"},
	};

	vu_parse(argc, argv, "churn", "QPs that end while others work", opts, VU_ARRAY(opts));
	ch.api = vu_post_of(api_name);
	ch.poll = vu_poll_of(poll_name);
	vu_check(ch.max_size && ch.max_size <= SLOT, "--max-size: 1 to %u", SLOT);
	vu_check(ch.lives && ch.lives <= MAX_LIVES, "--lives: 1 to %u", MAX_LIVES);
	vu_dev_open_pair(ch.dev);
	for (int i = 0; i < 2; i++) {
		vu_mem_alloc(&ch.mem[i], &ch.dev[i], OWNERS * SLOT, VU_ACCESS | IBV_ACCESS_MW_BIND);
		vu_cq_create(&ch.rcq[i], &ch.dev[i], 8, NULL, VU_POLL_CQ, NULL);
	}
	/* Also what a QP left behind that is reset or destroyed. */
	vu_cq_create(&ch.scq, &ch.dev[0], 2 * OWNERS * DEPTH, NULL, ch.poll, NULL);
	vu_on_hang = show;

	run("one poller", 1, false);
	run("two pollers", 2, false);
	if (ibv_resize_cq(ch.scq.cq, 2 * OWNERS * DEPTH) != EOPNOTSUPP)
		run("two pollers, resizing", 2, true);
	vu_on_hang = NULL;
	churn_ud();

	vu_cq_destroy(&ch.scq);
	for (int i = 0; i < 2; i++) {
		vu_cq_destroy(&ch.rcq[i]);
		vu_mem_free(&ch.mem[i]);
		vu_dev_close(&ch.dev[i]);
	}
	return vu_pass("%u QPs lived %" PRIu64 " times", OWNERS, ch.lives);
}
