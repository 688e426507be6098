/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cqex: extended CQs as ibv_create_cq_ex(3) describes them. The log has every field of every
 * completion, so that it shows what a preloaded run changes.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 64
#define SMALL 3000u
#define BIG (1u << 20)

static struct vu_dev dev[2];
static struct vu_mem mem[2];
static uint64_t max_size = BIG, goal = 1000;
#define LARGE ((uint32_t)max_size)

/* ---- a pair of QPs whose CQs are extended ones ---- */

struct pair {
	struct ibv_cq_ex *cq[2]; /* of all that a side does */
	struct vu_qp qp[2];
};

static struct ibv_cq_init_attr_ex cq_attr(uint64_t wc_flags)
{
	return (struct ibv_cq_init_attr_ex){.cqe = 4 * DEPTH, .wc_flags = wc_flags};
}

static struct ibv_cq_ex *make_cq(struct vu_dev *d, const struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_init_attr_ex a = *attr;
	struct ibv_cq_ex *cq = ibv_create_cq_ex(d->ctx, &a);

	vu_check(cq, "ibv_create_cq_ex: %s", strerror(errno));
	vu_check(!memcmp(&a, attr, sizeof(a)), "ibv_create_cq_ex changed its attributes");
	return cq;
}

static void make_qps(struct pair *p)
{
	struct vu_link link = vu_link_default(&dev[0]);

	for (int i = 0; i < 2; i++) {
		struct ibv_cq *cq = ibv_cq_ex_to_cq(p->cq[i]);
		struct ibv_qp_init_attr init = {.send_cq = cq,
						.recv_cq = cq,
						.cap = {.max_send_wr = DEPTH,
							.max_recv_wr = DEPTH,
							.max_send_sge = 1,
							.max_recv_sge = 1},
						.qp_type = IBV_QPT_RC};

		vu_qp_create(&p->qp[i], &dev[i], &init, VU_POST_SEND);
	}
	vu_connect(&dev[0], p->qp[0].qp, &dev[1], p->qp[1].qp, &link);
}

static void open_pair(struct pair *p, const struct ibv_cq_init_attr_ex *attr)
{
	for (int i = 0; i < 2; i++)
		p->cq[i] = make_cq(&dev[i], attr);
	make_qps(p);
}

static void close_cqs(struct pair *p)
{
	int err;

	for (int i = 0; i < 2; i++) {
		err = ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq[i]));
		vu_check(!err, "ibv_destroy_cq: %s", strerror(err));
	}
}

static void close_pair(struct pair *p)
{
	vu_qp_destroy(&p->qp[0]);
	vu_qp_destroy(&p->qp[1]);
	close_cqs(p);
}

static void post(struct pair *p, enum ibv_wr_opcode op, uint64_t wr_id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mem[0].p, len, mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(op, &sge, wr_id, IBV_SEND_SIGNALED);

	vu_wr_remote(&wr, mem[1].p, mem[1].mr->rkey);
	wr.imm_data = htobe32((uint32_t)wr_id);
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)mem[1].p;
		wr.wr.atomic.rkey = mem[1].mr->rkey;
	}
	vu_must_post(p->qp[0].qp, &wr);
}

static void post_recvs(struct pair *p, unsigned int n)
{
	struct ibv_sge sge = {(uintptr_t)mem[1].p + BIG, BIG, mem[1].mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	for (; n; n--, wr.wr_id++)
		vu_must_recv(p->qp[1].qp, &wr);
}

/* ---- polling ---- */

static int start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {0};

	return ibv_start_poll(cq, &attr);
}

/* Until there is an entry. */
static void must_start(struct ibv_cq_ex *cq)
{
	int err;

	while ((err = start_poll(cq)) == ENOENT)
		sched_yield();
	vu_check(!err, "ibv_start_poll: %d", err);
}

static bool next_poll(struct ibv_cq_ex *cq)
{
	int err = dev[0].is_rxe ? ENOENT : ibv_next_poll(cq);

	vu_check(!err || err == ENOENT, "ibv_next_poll: %d", err);
	return !err;
}

typedef void (*entry_fn)(struct ibv_cq_ex *cq, void *arg);

/* @n entries, in batches as they come. */
static void poll_n(struct ibv_cq_ex *cq, unsigned int n, entry_fn fn, void *arg)
{
	while (n) {
		must_start(cq);
		do
			fn(cq, arg);
		while (--n && next_poll(cq));
		ibv_end_poll(cq);
	}
}

static void expect_empty(struct ibv_cq_ex *cq)
{
	vu_sleep(0.02);
	vu_check(start_poll(cq) == ENOENT, "an entry too many: wr_id %" PRIu64, cq->wr_id);
}

/* What a program can read of an entry, and what a QP is called in every run. */
static void log_entry(struct ibv_cq_ex *cq, void *arg)
{
	const struct pair *p = arg;
	int qp = ibv_wc_read_qp_num(cq) == p->qp[0].qp->qp_num	 ? 0
		 : ibv_wc_read_qp_num(cq) == p->qp[1].qp->qp_num ? 1
								 : 9;

	vu_log("wr_id %" PRIu64 " status %d qp %d", cq->wr_id, (int)cq->status, qp);
	if (cq->status != IBV_WC_SUCCESS) {
		vu_log(" vendor_err %#x", ibv_wc_read_vendor_err(cq));
	} else {
		vu_log(" opcode %d wc_flags %#x", (int)ibv_wc_read_opcode(cq),
		       ibv_wc_read_wc_flags(cq));
		vu_log(" sl %u slid %u dlid %u", ibv_wc_read_sl(cq), ibv_wc_read_slid(cq),
		       ibv_wc_read_dlid_path_bits(cq));
		/* else undefined, and not the same in two native runs */
		if (ibv_wc_read_opcode(cq) & IBV_WC_RECV ||
		    ibv_wc_read_opcode(cq) == IBV_WC_RDMA_READ)
			vu_log(" byte_len %u", ibv_wc_read_byte_len(cq));
		if (ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM)
			vu_log(" imm %#x", ibv_wc_read_imm_data(cq));
	}
	vu_log("\n");
}

/* Each wr_id is one more than the last. */
static void check_next(struct ibv_cq_ex *cq, void *arg)
{
	uint64_t *next = arg;

	vu_check(cq->status == IBV_WC_SUCCESS, "wr_id %" PRIu64 ": %s", cq->wr_id,
		 ibv_wc_status_str(cq->status));
	vu_check(cq->wr_id == *next, "wr_id %" PRIu64 " instead of %" PRIu64, cq->wr_id, *next);
	++*next;
}

/* ---- every field, for all kinds of completions ---- */

static void case_fields(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	struct pair p;

	open_pair(&p, &attr);
	post_recvs(&p, 3);
	post(&p, IBV_WR_RDMA_WRITE, 1, SMALL);
	post(&p, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 1);
	post(&p, IBV_WR_SEND, 3, SMALL);
	post(&p, IBV_WR_SEND_WITH_IMM, 4, SMALL);
	post(&p, IBV_WR_RDMA_READ, 5, SMALL);
	post(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 6, 8);
	post(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 7, 8);
	post(&p, IBV_WR_RDMA_READ, 8, LARGE);
	poll_n(p.cq[0], 8, log_entry, &p);
	poll_n(p.cq[1], 3, log_entry, &p);
	expect_empty(p.cq[0]);
	expect_empty(p.cq[1]);
	close_pair(&p);
}

/* A WR that fails in the middle of a queue, what is flushed behind it, and the receives. */
static void case_errors(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	struct pair p;
	uint32_t good;

	open_pair(&p, &attr);
	post_recvs(&p, 4);
	post(&p, IBV_WR_RDMA_WRITE, 1, LARGE);
	good = mem[1].mr->rkey;
	mem[1].mr->rkey ^= 0xff00;
	post(&p, IBV_WR_RDMA_WRITE, 2, SMALL);
	mem[1].mr->rkey = good;
	for (uint64_t i = 3; i < 9; i++)
		post(&p, IBV_WR_RDMA_WRITE, i, LARGE);
	poll_n(p.cq[0], 8, log_entry, &p);
	vu_check(!vu_qp_to_state(p.qp[1].qp, IBV_QPS_ERR), "modify to ERR");
	poll_n(p.cq[1], 4, log_entry, &p);
	expect_empty(p.cq[0]);
	expect_empty(p.cq[1]);
	close_pair(&p);
}

/* Only readers that were asked for are there, and status and wr_id always. */
static void case_readers(void)
{
	static const uint64_t flags[] = {0, IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_QP_NUM,
					 IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_init_attr_ex attr;
	uint64_t next;
	struct pair p;

	for (size_t i = 0; i < VU_ARRAY(flags); i++) {
		attr = cq_attr(flags[i]);
		open_pair(&p, &attr);
		vu_log("flags %#" PRIx64 ": %d %d %d %d %d %d %d %d %d %d\n", flags[i],
		       !!p.cq[0]->read_opcode, !!p.cq[0]->read_byte_len, !!p.cq[0]->read_imm_data,
		       !!p.cq[0]->read_qp_num, !!p.cq[0]->read_src_qp, !!p.cq[0]->read_slid,
		       !!p.cq[0]->read_sl, !!p.cq[0]->read_dlid_path_bits,
		       !!p.cq[0]->read_completion_ts, !!p.cq[0]->read_flow_tag);
		next = 1;
		post(&p, IBV_WR_RDMA_WRITE, 1, LARGE);
		post(&p, IBV_WR_RDMA_WRITE, 2, SMALL);
		poll_n(p.cq[0], 2, check_next, &next);
		close_pair(&p);
	}
	attr = cq_attr(1ull << 40);
	vu_check(!ibv_create_cq_ex(dev[0].ctx, &attr), "unknown wc_flags were accepted");
	attr = cq_attr(0);
	attr.comp_mask = 1u << 30;
	vu_log("unknown comp_mask: %d\n", !!ibv_create_cq_ex(dev[0].ctx, &attr));
}

/* ---- nothing there ---- */

static void *poll_elsewhere(void *arg)
{
	return start_poll(arg) == ENOENT ? arg : NULL;
}

static void case_empty(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	struct ibv_poll_cq_attr unknown = {.comp_mask = 1};
	uint64_t next = 1;
	void *same;
	struct pair p;
	pthread_t t;

	open_pair(&p, &attr);
	for (int i = 0; i < 1000; i++)
		vu_check(start_poll(p.cq[0]) == ENOENT, "an entry of nothing");
	/* No lock is left behind. */
	vu_check(!pthread_create(&t, NULL, poll_elsewhere, p.cq[0]), "pthread_create");
	pthread_join(t, &same);
	vu_check(same, "another thread got an entry of nothing");
	if (!dev[0].is_rxe)
		vu_log("unknown attributes: %d\n", ibv_start_poll(p.cq[0], &unknown));
	post(&p, IBV_WR_RDMA_WRITE, 1, LARGE);
	poll_n(p.cq[0], 1, check_next, &next);
	close_pair(&p);
}

/* ---- batches ---- */

static void case_batches(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	uint64_t next = 0, wr_id = 0;
	struct ibv_wc wc[DEPTH];
	struct pair p;
	int n;

	open_pair(&p, &attr);
	for (int round = 0; round < 20; round++) {
		for (; wr_id - next < DEPTH; wr_id++)
			post(&p, IBV_WR_RDMA_WRITE, wr_id, wr_id % 7 ? SMALL : LARGE / 4);
		vu_sleep(round % 4 ? 0 : 0.02);
		poll_n(p.cq[0], 1 + (unsigned int)round, check_next, &next);
		/* The rest of what was taken off the CQ belongs to whoever polls next. */
		n = ibv_poll_cq(ibv_cq_ex_to_cq(p.cq[0]), round, wc);
		for (int i = 0; i < n; i++, next++)
			vu_check(wc[i].wr_id == next && wc[i].status == IBV_WC_SUCCESS,
				 "wr_id %" PRIu64 " instead of %" PRIu64, wc[i].wr_id, next);
	}
	poll_n(p.cq[0], (unsigned int)(wr_id - next), check_next, &next);
	expect_empty(p.cq[0]);
	/* Posting inside a batch, into a queue that was full. */
	for (int i = 0; i < DEPTH; i++)
		post(&p, IBV_WR_RDMA_WRITE, wr_id++, SMALL);
	for (int i = 0; i < 4 * DEPTH; i++) {
		must_start(p.cq[0]);
		check_next(p.cq[0], &next);
		post(&p, IBV_WR_RDMA_WRITE, wr_id++, SMALL);
		vu_check(p.cq[0]->wr_id == next - 1, "a post changed the current entry");
		ibv_end_poll(p.cq[0]);
	}
	poll_n(p.cq[0], DEPTH, check_next, &next);
	close_pair(&p);
}

/*
 * The program stays in a batch until the peer has all bytes of a WR that it posted there, which
 * takes more of the queue than the NIC is given at once. What it looks at must not change.
 */
static void case_long_batch(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	volatile uint8_t *last = mem[1].p + LARGE - 1;
	uint64_t next = 1;
	struct pair p;

	open_pair(&p, &attr);
	post(&p, IBV_WR_RDMA_WRITE, 1, SMALL);
	must_start(p.cq[0]);
	check_next(p.cq[0], &next);
	mem[0].p[LARGE - 1] = 1;
	*last = 0;
	for (uint64_t i = 0; i < 4; i++)
		post(&p, IBV_WR_RDMA_WRITE, 2 + i, LARGE);
	while (*last != 1)
		vu_check(p.cq[0]->wr_id == 1 && p.cq[0]->status == IBV_WC_SUCCESS,
			 "wr_id %" PRIu64 " instead of 1", p.cq[0]->wr_id);
	vu_sleep(0.01);
	vu_check(p.cq[0]->wr_id == 1 && ibv_wc_read_opcode(p.cq[0]) == IBV_WC_RDMA_WRITE,
		 "the entry changed in the end");
	ibv_end_poll(p.cq[0]);
	poll_n(p.cq[0], 4, check_next, &next);
	close_pair(&p);
}

/* ---- time stamps ---- */

static void check_ts(struct ibv_cq_ex *cq, void *arg)
{
	uint64_t *last = arg, ts = ibv_wc_read_completion_ts(cq);

	vu_check(cq->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(cq->status));
	vu_check(ts, "wr_id %" PRIu64 " has no time stamp", cq->wr_id);
	vu_check(ts >= *last, "time stamp %" PRIu64 " after %" PRIu64, ts, *last);
	*last = ts;
}

static void case_timestamps(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	uint64_t last[2] = {0}, first;
	struct ibv_cq_ex *probe = ibv_create_cq_ex(dev[0].ctx, &attr);
	struct pair p;

	if (!probe) {
		vu_log("timestamps: %s\n", strerror(errno));
		return;
	}
	ibv_destroy_cq(ibv_cq_ex_to_cq(probe));
	open_pair(&p, &attr);
	for (int round = 0; round < 4; round++) {
		post_recvs(&p, DEPTH / 2);
		for (uint64_t i = 0; i < DEPTH; i++)
			post(&p, i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, i, i % 8 ? SMALL : LARGE);
		vu_sleep(round % 2 ? 0.02 : 0);
		first = last[0];
		poll_n(p.cq[0], DEPTH, check_ts, &last[0]);
		poll_n(p.cq[1], DEPTH / 2, check_ts, &last[1]);
		vu_check(last[0] > first, "time stands still");
	}
	close_pair(&p);
}

/* ---- several threads, each by another interface ---- */

static struct pair shared;
static uint64_t seen[DEPTH], total;

static void count(uint64_t wr_id, enum ibv_wc_status status)
{
	vu_check(status == IBV_WC_SUCCESS && wr_id < DEPTH, "wr_id %" PRIu64 ": %s", wr_id,
		 ibv_wc_status_str(status));
	__atomic_add_fetch(&seen[wr_id], 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&total, 1, __ATOMIC_RELEASE);
}

static uint64_t counted(void)
{
	return __atomic_load_n(&total, __ATOMIC_ACQUIRE);
}

/*
 * A batch ends after DEPTH entries: the NIC learns only then that they were read, and while others
 * post, one that goes on for as long as there are entries would let it overrun the CQ.
 */
static void *use_start_poll(void *arg)
{
	struct ibv_cq_ex *cq = shared.cq[0];
	uint64_t wr_id;
	int n;

	(void)arg;
	while (counted() < goal) {
		if (start_poll(cq)) {
			sched_yield();
			continue;
		}
		n = 0;
		do {
			wr_id = cq->wr_id;
			if (wr_id % 16 == 0)
				sched_yield(); /* the others try now */
			vu_check(cq->wr_id == wr_id, "another thread is in this batch");
			count(wr_id, cq->status);
		} while (++n < DEPTH && next_poll(cq));
		ibv_end_poll(cq);
	}
	return NULL;
}

static void *use_poll_cq(void *arg)
{
	struct ibv_wc wc[3];
	int n;

	(void)arg;
	while (counted() < goal) {
		n = ibv_poll_cq(ibv_cq_ex_to_cq(shared.cq[0]), 3, wc);
		vu_check(n >= 0, "ibv_poll_cq: %d", n);
		for (int i = 0; i < n; i++)
			count(wc[i].wr_id, wc[i].status);
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void case_threads(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	void *(*const ways[])(void *) = {use_start_poll, use_poll_cq, use_start_poll};
	pthread_t t[VU_ARRAY(ways)];

	open_pair(&shared, &attr);
	for (size_t i = 0; i < VU_ARRAY(ways); i++)
		vu_check(!pthread_create(&t[i], NULL, ways[i], NULL), "pthread_create");
	for (uint64_t i = 0; i < goal; i++) {
		while (i - counted() >= DEPTH / 2)
			sched_yield();
		post(&shared, IBV_WR_RDMA_WRITE, i % DEPTH, i % 50 ? SMALL : LARGE / 4);
	}
	for (size_t i = 0; i < VU_ARRAY(ways); i++)
		pthread_join(t[i], NULL);
	for (uint64_t i = 0; i < DEPTH; i++)
		vu_check(seen[i] == goal / DEPTH + (i < goal % DEPTH),
			 "wr_id %" PRIu64 " completed %" PRIu64 " times", i, seen[i]);
	expect_empty(shared.cq[0]);
	close_pair(&shared);
}

/* ---- flags at creation ---- */

static void case_flags(void)
{
	static const uint32_t flags[] = {
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 1u << 30};
	struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE,
					      .moderate = {.cq_count = 4, .cq_period = 20}};
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	struct ibv_cq_ex *probe;
	uint64_t next = 0;
	struct pair p;

	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	for (size_t i = 0; i < VU_ARRAY(flags); i++) {
		attr.flags = flags[i];
		probe = ibv_create_cq_ex(dev[0].ctx, &attr);
		vu_log("flags %#x: %s\n", flags[i], probe ? "ok" : strerror(errno));
		if (!probe)
			continue;
		ibv_destroy_cq(ibv_cq_ex_to_cq(probe));
		open_pair(&p, &attr);
		vu_log("modify: %d\n", ibv_modify_cq(ibv_cq_ex_to_cq(p.cq[0]), &moderate));
		for (uint64_t k = 0; k < 16; k++)
			post(&p, IBV_WR_RDMA_WRITE, next + k, LARGE / 4);
		poll_n(p.cq[0], 16, check_next, &next);
		close_pair(&p);
	}
}

static void case_parent_domain(void)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(dev[0].ctx, &td_attr);
	struct ibv_parent_domain_init_attr pd_attr = {.pd = dev[0].pd, .td = td};
	struct ibv_pd *pd = td ? ibv_alloc_parent_domain(dev[0].ctx, &pd_attr) : NULL;
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS), plain = attr;
	uint64_t next = 0;
	struct pair p;

	if (!pd) {
		vu_log("parent domain: %s\n", strerror(errno));
		return;
	}
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	attr.parent_domain = pd;
	p.cq[0] = make_cq(&dev[0], &attr);
	p.cq[1] = make_cq(&dev[1], &plain);
	make_qps(&p);
	for (uint64_t k = 0; k < 16; k++)
		post(&p, IBV_WR_RDMA_WRITE, k, LARGE / 4);
	poll_n(p.cq[0], 16, check_next, &next);
	close_pair(&p);
	vu_check(!ibv_dealloc_pd(pd) && !ibv_dealloc_td(td), "the parent domain is still in use");
}

/* ---- resize and destroy with entries that nobody polled ---- */

static void case_left(void)
{
	struct ibv_cq_init_attr_ex attr = cq_attr(IBV_WC_STANDARD_FLAGS);
	uint64_t next = 0;
	struct pair p;

	open_pair(&p, &attr);
	for (uint64_t i = 0; i < DEPTH; i++)
		post(&p, IBV_WR_RDMA_WRITE, i, SMALL);
	poll_n(p.cq[0], 3, check_next, &next);
	vu_check(ibv_destroy_cq(ibv_cq_ex_to_cq(p.cq[0])) == EBUSY, "a CQ in use went away");
	vu_check(!ibv_resize_cq(ibv_cq_ex_to_cq(p.cq[0]), 8 * DEPTH), "ibv_resize_cq");
	poll_n(p.cq[0], 3, check_next, &next);
	vu_sleep(0.05);
	must_start(p.cq[0]); /* takes a batch off */
	check_next(p.cq[0], &next);
	ibv_end_poll(p.cq[0]);
	close_pair(&p);

	/* The QP first, then what it left behind, then the CQ. */
	open_pair(&p, &attr);
	for (uint64_t i = 0; i < DEPTH; i++)
		post(&p, IBV_WR_RDMA_WRITE, i, SMALL);
	next = 0;
	poll_n(p.cq[0], DEPTH, check_next, &next);
	vu_qp_destroy(&p.qp[0]);
	vu_qp_destroy(&p.qp[1]);
	expect_empty(p.cq[0]);
	close_cqs(&p);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"fields", case_fields},
	{"errors", case_errors},
	{"readers", case_readers},
	{"empty", case_empty},
	{"batches", case_batches},
	{"long-batch", case_long_batch},
	{"timestamps", case_timestamps},
	{"threads", case_threads},
	{"flags", case_flags},
	{"parent-domain", case_parent_domain},
	{"left", case_left},
};

int main(int argc, char **argv)
{
	const char *only = NULL;
	const struct vu_opt opts[] = {
		{"case", VU_OPT_STR, &only, "run this case only"},
		{"max-size", VU_OPT_NUM, &max_size, "longest message, up to 1M"},
		{"count", VU_OPT_NUM, &goal, "completions that threads share"},
	};
	int n = 0;

	vu_parse(argc, argv, "cqex", "extended completion queues", opts, VU_ARRAY(opts));
	vu_check(max_size >= SMALL && max_size <= BIG, "--max-size: %u to 1M", SMALL);
	vu_dev_open_pair(dev);
	for (int i = 0; i < 2; i++)
		vu_mem_alloc(&mem[i], &dev[i], 2 * BIG, VU_ACCESS);
	for (size_t i = 0; i < VU_ARRAY(cases); i++)
		if (!only || !strcmp(only, cases[i].name)) {
			vu_at(cases[i].name);
			vu_log("== %s\n", cases[i].name);
			cases[i].run();
			n++;
		}
	vu_check(n, "no case \"%s\"", only);
	for (int i = 0; i < 2; i++) {
		vu_mem_free(&mem[i]);
		vu_dev_close(&dev[i]);
	}
	return vu_pass("%d cases", n);
}
