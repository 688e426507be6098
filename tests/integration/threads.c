/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * threads: many posters, many pollers. Every WR completes exactly once, and those of one thread on
 * one QP in the order in which that thread posted them.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64
#define DEPTH 32
#define SLOT (256u << 10) /* a poster's own piece of memory */

struct poster {
	pthread_t thread;
	struct vu_qp *q;
	uint32_t id;
	uint64_t done; /* completions, atomically */
	uint64_t posted;
	uint32_t last_len;
	uint8_t *completed; /* one for each WR, atomically */
};

static struct vu_dev dev[2];
static struct vu_mem mem[2];
static struct vu_cq scq, rcq[2];
static struct poster poster[MAX_THREADS];
static uint64_t nthreads = 4, count = 300, npollers = 1, max_size = 64 << 10;
static uint64_t total; /* completions that all pollers got, atomically */
static bool own_qps;
static enum vu_poll how;
static enum vu_post api;

/* ---- posting ---- */

static uint32_t draw_len(struct vu_rng *r)
{
	return (uint32_t)(vu_chance(r, 80) ? vu_range(r, 1, 5000) : vu_range(r, 1, max_size));
}

/* One WR; the queue may be full, as others post to it, too. */
static void post_one(struct poster *t, struct vu_rng *r)
{
	uint32_t len = draw_len(r);
	uint8_t *from = mem[0].p + t->id * SLOT;
	struct ibv_sge sge = {(uintptr_t)from, len, mem[0].mr->lkey};
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, (uint64_t)t->id << 32 | t->posted,
				      IBV_SEND_SIGNALED);
	bool builders = api == VU_POST_WR || (api == VU_POST_MIXED && vu_chance(r, 50));
	int err;

	vu_wr_remote(&wr, mem[1].p + t->id * SLOT, mem[1].mr->rkey);
	while ((err = vu_qp_post(t->q, &wr, &bad, builders))) {
		vu_check((err == ENOMEM || (dev[0].is_rxe && err == ENOSPC)) && bad == &wr,
			 "thread %u: posting: %s", t->id, strerror(err));
		sched_yield();
	}
	t->posted++;
	t->last_len = len;
}

/* Never more under way than the thread's share of the queue and of the CQ. */
static void wait_for_share(const struct poster *t, uint64_t share)
{
	while (t->posted - __atomic_load_n(&t->done, __ATOMIC_ACQUIRE) >= share)
		sched_yield();
}

static void *post_many(void *arg)
{
	struct poster *t = arg;
	struct vu_rng r = {vu.seed * 1000 + t->id};
	uint64_t share = own_qps ? DEPTH : DEPTH / nthreads;

	for (uint64_t i = 0; i < count; i++) {
		wait_for_share(t, share ? share : 1);
		post_one(t, &r);
	}
	return NULL;
}

/* ---- polling ---- */

/*
 * The sequence number of a completion must be the next one; with several pollers the order between
 * them is lost after the poll, so each of them can only see it grow.
 */
static void check_order(struct poster *t, uint64_t seq, uint64_t *seen)
{
	if (npollers == 1)
		vu_check(seq == *seen, "thread %u: completion %" PRIu64 " instead of %" PRIu64,
			 t->id, seq, *seen);
	else
		vu_check(seq + 1 > *seen, "thread %u: completion %" PRIu64 " after %" PRIu64, t->id,
			 seq, *seen - 1);
	*seen = seq + 1;
	vu_check(!__atomic_exchange_n(&t->completed[seq], 1, __ATOMIC_RELAXED),
		 "thread %u: completion %" PRIu64 " twice", t->id, seq);
}

static void on_wc(const struct ibv_wc *wc, uint64_t *seen)
{
	uint32_t id = (uint32_t)(wc->wr_id >> 32);
	struct poster *t;

	vu_check(wc->status == IBV_WC_SUCCESS, "wr_id %#" PRIx64 ": %s", wc->wr_id,
		 ibv_wc_status_str(wc->status));
	vu_check(id < nthreads && (uint32_t)wc->wr_id < count,
		 "wr_id %#" PRIx64 " was never posted", wc->wr_id);
	t = &poster[id];
	vu_check(wc->qp_num == t->q->qp->qp_num, "thread %u: qp_num %u instead of %u", id,
		 wc->qp_num, t->q->qp->qp_num);
	check_order(t, (uint32_t)wc->wr_id, &seen[id]);
	__atomic_add_fetch(&t->done, 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&total, 1, __ATOMIC_RELAXED);
}

static void *poll_many(void *arg)
{
	struct vu_rng r = {vu.seed + (uintptr_t)arg};
	uint64_t seen[MAX_THREADS] = {0};
	struct ibv_wc wc[8];
	int n;

	while (__atomic_load_n(&total, __ATOMIC_RELAXED) < nthreads * count) {
		n = vu_cq_poll(&scq, 8, wc, vu_poll_ex(how, &r));
		vu_check(n >= 0, "polling: %d", n);
		for (int i = 0; i < n; i++)
			on_wc(&wc[i], seen);
		if (!n)
			sched_yield();
	}
	return NULL;
}

/* ---- one arrangement ---- */

static struct vu_qp *make_qps(uint64_t n)
{
	struct vu_qp *q = vu_alloc(2 * n * sizeof(*q));
	struct vu_link link = vu_link_default(&dev[0]);

	for (uint64_t i = 0; i < 2 * n; i++) {
		struct ibv_qp_init_attr init = {.send_cq = i % 2 ? rcq[1].cq : scq.cq,
						.recv_cq = rcq[i % 2].cq,
						.cap = {.max_send_wr = DEPTH,
							.max_recv_wr = 1,
							.max_send_sge = 1,
							.max_recv_sge = 1},
						.qp_type = IBV_QPT_RC};

		vu_qp_create(&q[i], &dev[i % 2], &init, i % 2 ? VU_POST_SEND : api);
		if (i % 2)
			vu_connect(&dev[0], q[i - 1].qp, &dev[1], q[i].qp, &link);
	}
	return q;
}

static void check_bytes(void)
{
	for (uint64_t i = 0; i < nthreads; i++)
		vu_check(!memcmp(mem[0].p + i * SLOT, mem[1].p + i * SLOT, poster[i].last_len),
			 "thread %u: wrong bytes", (unsigned int)i);
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	int err = pthread_create(t, NULL, fn, arg);

	vu_check(!err, "pthread_create: %s", strerror(err));
}

static void run(const char *what, bool own, uint64_t pollers)
{
	pthread_t poller[MAX_THREADS];
	uint64_t nqp = own ? nthreads : 1;
	struct vu_qp *q;
	struct ibv_wc wc;

	vu_at(what);
	own_qps = own;
	npollers = pollers;
	total = 0;
	memset(poster, 0, sizeof(poster));
	memset(mem[1].p, 0, mem[1].len);
	q = make_qps(nqp);
	for (uint64_t i = 0; i < nthreads; i++) {
		poster[i].id = (uint32_t)i;
		poster[i].q = &q[own ? 2 * i : 0];
		poster[i].completed = vu_alloc(count);
	}
	for (uint64_t i = 0; i < pollers; i++)
		start(&poller[i], poll_many, &poller[i]);
	for (uint64_t i = 0; i < nthreads; i++)
		start(&poster[i].thread, post_many, &poster[i]);
	for (uint64_t i = 0; i < nthreads; i++)
		pthread_join(poster[i].thread, NULL);
	for (uint64_t i = 0; i < pollers; i++)
		pthread_join(poller[i], NULL);
	vu_check(!vu_cq_collect(&scq, 1, &wc, 0.02), "%s: a completion too many", what);
	check_bytes();
	vu_log("%s: %" PRIu64 "\n", what, total);
	for (uint64_t i = 0; i < nthreads; i++)
		free(poster[i].completed);
	for (uint64_t i = 0; i < 2 * nqp; i++)
		vu_qp_destroy(&q[i]);
	free(q);
}

int main(int argc, char **argv)
{
	const char *poll_name = "cq";
	const char *api_name = "send";
	const struct vu_opt opts[] = {
		{"api", VU_OPT_STR, &api_name, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"threads", VU_OPT_NUM, &nthreads, "posting threads"},
		{"count", VU_OPT_NUM, &count, "WRs of each"},
		{"max-size", VU_OPT_NUM, &max_size, "longest WRITE"},
		{"poll", VU_OPT_STR, &poll_name, "how to poll: cq, ex (ibv_start_poll) or mixed"},
	};

	vu_parse(argc, argv, "threads", "many threads on shared queues", opts, VU_ARRAY(opts));
	api = vu_post_of(api_name);
	vu_check(nthreads && nthreads <= MAX_THREADS, "--threads: 1 to %d", MAX_THREADS);
	vu_check(max_size && max_size <= SLOT, "--max-size: 1 to %u", SLOT);
	how = vu_poll_of(poll_name);
	vu_dev_open_pair(dev);
	for (int i = 0; i < 2; i++) {
		vu_mem_alloc(&mem[i], &dev[i], MAX_THREADS * SLOT, VU_ACCESS);
		vu_cq_create(&rcq[i], &dev[i], 4, NULL, VU_POLL_CQ, NULL);
	}
	vu_fill(mem[0].p, mem[0].len, vu.seed);
	vu_cq_create(&scq, &dev[0], (int)nthreads * DEPTH, NULL, how, NULL);

	run("many posters on one QP", false, 1);
	run("own QPs, one CQ", true, 1);
	run("one QP, two pollers", false, 2);
	run("own QPs, two pollers", true, 2);

	vu_cq_destroy(&scq);
	for (int i = 0; i < 2; i++) {
		vu_cq_destroy(&rcq[i]);
		vu_mem_free(&mem[i]);
		vu_dev_close(&dev[i]);
	}
	return vu_pass("%u threads, %u WRs each, 4 arrangements", (unsigned int)nthreads,
		       (unsigned int)count);
}
