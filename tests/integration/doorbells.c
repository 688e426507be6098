/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doorbells: threads that post to QPs of their own, one doorbell per post. Prints which thread uses
 * which QP, for tests/uar/check_trace to compare with the doorbells that the emulated NIC saw.
 *
 * Every QP is connected to itself and writes a growing number into a slot of its own; after each
 * burst the slot must hold the last one. A lost doorbell hangs, a torn one writes something else.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 64
#define MAX_QPS 64 /* of a thread */
#define DEPTH 64
#define RECEIVES 100 /* of each thread, all to one QP */

struct poster {
	pthread_t thread;
	uint32_t id;
	int tid;
	struct vu_cq cq;
	struct vu_qp qp[MAX_QPS];
	uint64_t seq[MAX_QPS];
	uint64_t value; /* what the next WR carries */
};

static struct vu_dev dev;
static struct vu_mem mem;
static struct poster poster[MAX_THREADS];
static uint64_t nthreads = 2, nqps = 1, posts = 1000, burst = 16, first = 0;
static const char *api = "send", *maker = "self";
static bool no_inline, domains, leave, pause_end;
static enum vu_post post_kind;
static pthread_barrier_t all;

/* ---- QPs ---- */

static void connect_to_itself(struct ibv_qp *qp)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct vu_link link = vu_link_default(&dev);
	struct vu_addr self;

	pthread_mutex_lock(&one_at_a_time); /* vu_addr_of() counts */
	self = vu_addr_of(&dev, qp);
	pthread_mutex_unlock(&one_at_a_time);
	vu_qp_to_init(&dev, qp);
	vu_qp_to_rtr(&dev, qp, &self, &link);
	vu_qp_to_rts(qp, self.psn, &link);
}

static void make_qp(struct poster *t, unsigned int i)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = t->cq.cq,
		.recv_cq = t->cq.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = no_inline ? 0 : 8},
	};

	vu_qp_create(&t->qp[i], &dev, &attr, post_kind);
	vu_check(t->qp[i].qp->pd == dev.pd, "the QP shows another PD than it was made on");
	connect_to_itself(t->qp[i].qp);
}

static void make_qps(struct poster *t)
{
	vu_cq_create(&t->cq, &dev, DEPTH * 2, NULL, VU_POLL_CQ, NULL);
	for (unsigned int i = 0; i < nqps; i++)
		make_qp(t, i);
}

/* ---- posting ---- */

static volatile uint64_t *slot_of(const struct poster *t, unsigned int i)
{
	return (volatile uint64_t *)mem.p + t->id * MAX_QPS + i;
}

static uint64_t *source_of(const struct poster *t, unsigned int i)
{
	return (uint64_t *)mem.p + MAX_THREADS * MAX_QPS + t->id * MAX_QPS + i;
}

static void post_one(struct poster *t, unsigned int i, bool signaled)
{
	uint64_t *from = source_of(t, i);
	struct ibv_sge sge = {(uintptr_t)from, 8, mem.mr->lkey};
	struct ibv_send_wr *bad, wr;
	int err;

	*from = ++t->seq[i];
	wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, t->seq[i],
		   (signaled ? IBV_SEND_SIGNALED : 0) | (no_inline ? 0 : IBV_SEND_INLINE));
	vu_wr_remote(&wr, (const void *)slot_of(t, i), mem.mr->rkey);
	err = vu_qp_post(&t->qp[i], &wr, &bad,
			 post_kind == VU_POST_WR || (post_kind == VU_POST_MIXED && t->seq[i] & 1));
	vu_check(!err, "thread %u: post: %s", t->id, strerror(err));
}

/* Without inline data the NIC reads the number when it comes to it: at least the first one. */
static void burst_on(struct poster *t, unsigned int i, uint64_t n)
{
	uint64_t got;

	for (uint64_t k = 1; k <= n; k++)
		post_one(t, i, k == n);
	vu_cq_expect_ok(&t->cq, t->seq[i], "the last write of a burst");
	got = *slot_of(t, i);
	vu_check(got == t->seq[i], "thread %u, QP %u: %" PRIu64 " arrived instead of %" PRIu64,
		 t->id, i, got, t->seq[i]);
}

static void post_all(struct poster *t)
{
	for (uint64_t done = 0, n; done < posts; done += n) {
		n = posts - done < burst ? posts - done : burst;
		for (unsigned int i = 0; i < nqps; i++)
			burst_on(t, i, n);
	}
}

/* Every thread to the same QP: its receive queue must stay whole. */
static void post_receives(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = {.wr_id = 1};

	for (int i = 0; i < RECEIVES; i++)
		vu_must_recv(qp, &wr);
}

static struct vu_cq shared_cq;
static struct vu_qp shared_qp;

static void *work(void *arg)
{
	struct poster *t = arg;

	t->tid = (int)syscall(SYS_gettid);
	if (!strcmp(maker, "self"))
		make_qps(t);
	pthread_barrier_wait(&all);
	if (first)
		for (unsigned int i = 0; i < nqps; i++)
			burst_on(t, i, first);
	post_all(t);
	post_receives(shared_qp.qp);
	pthread_barrier_wait(&all);
	return NULL;
}

/* ---- the whole ---- */

static void make_shared_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_recv_wr = MAX_THREADS * RECEIVES, .max_recv_sge = 1},
	};

	vu_cq_create(&shared_cq, &dev, MAX_THREADS * RECEIVES, NULL, VU_POLL_CQ, NULL);
	attr.send_cq = attr.recv_cq = shared_cq.cq;
	vu_qp_create(&shared_qp, &dev, &attr, VU_POST_SEND);
	vu_qp_to_init(&dev, shared_qp.qp);
}

static void check_receives(void)
{
	static struct ibv_wc wc[MAX_THREADS * RECEIVES];
	int want = (int)nthreads * RECEIVES, got;

	vu_check(!vu_qp_to_state(shared_qp.qp, IBV_QPS_ERR), "cannot move a QP to ERR");
	got = vu_cq_collect(&shared_cq, want, wc, 10);
	vu_check(got == want, "%d of %d receives were flushed", got, want);
}

/* A program that arranges its thread domains itself is left alone. */
static void use_own_domains(void)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(dev.ctx, &td_attr);
	struct ibv_parent_domain_init_attr attr = {.pd = dev.pd, .td = td};
	struct ibv_pd *parent = td ? ibv_alloc_parent_domain(dev.ctx, &attr) : NULL, *pd = dev.pd;
	struct poster *t = &poster[0];

	vu_check(parent, "no parent domain: %s", strerror(errno));
	nthreads = 1;
	t->tid = (int)syscall(SYS_gettid);
	dev.pd = parent; /* make_qp() checks that its QPs show this one */
	make_qps(t);
	post_all(t);
	for (unsigned int i = 0; i < nqps; i++)
		vu_qp_destroy(&t->qp[i]);
	vu_cq_destroy(&t->cq);
	dev.pd = pd;
	vu_check(!ibv_dealloc_pd(parent), "the parent domain is busy");
	vu_check(!ibv_dealloc_td(td), "the thread domain is busy");
}

static void run_threads(void)
{
	pthread_barrier_init(&all, NULL, (unsigned int)nthreads);
	for (unsigned int t = 0; t < nthreads; t++) {
		poster[t].id = t;
		if (strcmp(maker, "self"))
			make_qps(&poster[t]);
	}
	make_shared_qp(); /* last, so that those made by main are the first of the context */
	for (unsigned int t = 0; t < nthreads; t++)
		pthread_create(&poster[t].thread, NULL, work, &poster[t]);
	for (unsigned int t = 0; t < nthreads; t++)
		pthread_join(poster[t].thread, NULL);
	check_receives();
}

static void tell(void)
{
	for (unsigned int t = 0; t < nthreads; t++)
		for (unsigned int i = 0; i < nqps; i++)
			printf("qp 0x%06x thread %d posts %" PRIu64 "\n",
			       poster[t].qp[i].qp->qp_num, poster[t].tid, poster[t].seq[i]);
	fflush(stdout);
}

static void destroy_all(void)
{
	int err = ibv_dealloc_pd(dev.pd);

	vu_check(err == EBUSY, "the PD of living QPs was freed, or: %s", strerror(err));
	for (unsigned int t = 0; t < nthreads; t++) {
		for (unsigned int i = 0; i < nqps; i++)
			vu_qp_destroy(&poster[t].qp[i]);
		vu_cq_destroy(&poster[t].cq);
	}
	vu_qp_destroy(&shared_qp);
	vu_cq_destroy(&shared_cq);
}

static void check_options(void)
{
	vu_check(nthreads >= 1 && nthreads <= MAX_THREADS, "--threads is not 1..64");
	vu_check(nqps >= 1 && nqps <= MAX_QPS, "--qps is not 1..64");
	vu_check(burst >= 1 && burst <= DEPTH, "--burst is not 1..64");
	post_kind = vu_post_of(api);
}

int main(int argc, char **argv)
{
	static const struct vu_opt opts[] = {
		{"threads", VU_OPT_NUM, &nthreads, "threads that post"},
		{"qps", VU_OPT_NUM, &nqps, "QPs of each"},
		{"posts", VU_OPT_NUM, &posts, "posts to each QP"},
		{"burst", VU_OPT_NUM, &burst, "of these between two looks at the CQ"},
		{"first", VU_OPT_NUM, &first, "posts to each QP before the rest"},
		{"api", VU_OPT_STR, &api, "send, wr or mixed"},
		{"maker", VU_OPT_STR, &maker, "who makes the QPs: self (each thread) or main"},
		{"no-inline", VU_OPT_FLAG, &no_inline, "data is not inline: no BlueFlame"},
		{"domains", VU_OPT_FLAG, &domains, "one thread, on a thread domain of its own"},
		{"leave", VU_OPT_FLAG, &leave, "close the device with everything on it"},
		{"pause", VU_OPT_FLAG, &pause_end, "before the end, until standard input ends"},
	};
	char c;

	vu_parse(argc, argv, "doorbells", "threads that ring doorbells", opts, VU_ARRAY(opts));
	check_options();
	vu_dev_open(&dev, vu.dev);
	vu_mem_alloc(&mem, &dev, 2 * MAX_THREADS * MAX_QPS * 8, VU_ACCESS);
	if (domains) {
		use_own_domains();
	} else {
		run_threads();
		tell();
		while (pause_end && read(STDIN_FILENO, &c, 1) > 0)
			;
		if (leave)
			return ibv_close_device(dev.ctx) ? 1 : vu_pass("left open");
		destroy_all();
	}
	vu_mem_free(&mem);
	vu_dev_close(&dev);
	return vu_pass("%" PRIu64 " threads, %" PRIu64 " QPs each", nthreads, nqps);
}
