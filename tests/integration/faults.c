/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faults: what a program sees when work requests fail. Each case posts a few WRs of which one goes
 * wrong, or pulls the QP away under them, and checks the list of completions against what the
 * specification allows and the native device does.
 *
 * The log gets the lists that do not depend on timing; the others are noted.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WR 16
#define MEM (8u << 20)
#define ID0 0x1000 /* wr_id of the first WR */
#define BIT(status) (1u << (status))
#define QUIET 3.0 /* seconds without a completion after which none is expected any more */

/* One WR of a batch. */
struct job {
	enum ibv_wr_opcode op;
	uint32_t len;
	const uint8_t *remote;
	uint32_t rkey;
	const uint8_t *local[3]; /* three SGEs of a third of len each; atomics use the first */
	uint32_t lkey[3];
	bool signaled;
};

struct run {
	struct vu_pair p;
	struct vu_pair_spec spec;
	struct vu_link link;
	struct job job[MAX_WR];
	int n; /* jobs posted */
	struct ibv_wc wc[2 * MAX_WR];
	int got;
	const char *name;
};

enum flush { FLUSH_MUST, FLUSH_MAY }; /* of WRs after the failed one */

/* What is allowed. */
struct verdict {
	int fail;	     /* index of the WR that fails; -1: any, or none */
	unsigned int status; /* BIT()s that its completion may have */
	enum flush flush;
	bool may_be_silent; /* the failed WR may have no completion (a native defect) */
};

/* ---- set-up ---- */

static void open_run(struct run *r, const char *name)
{
	memset(r, 0, sizeof(*r));
	r->name = name;
	vu_at(name);
	vu_dev_open(&r->p.dev[0], vu.dev);
	r->link = vu_link_default(&r->p.dev[0]);
	vu_dev_close(&r->p.dev[0]);
	r->spec = (struct vu_pair_spec){.mem = MEM,
					.send_wr = MAX_WR,
					.recv_wr = MAX_WR,
					.sge = 3,
					.cqe = 2 * MAX_WR,
					.link = &r->link};
}

static void connect_run(struct run *r)
{
	vu_pair_open(&r->p, &r->spec);
	vu_fill(r->p.mem[0].p, MEM, 1);
	vu_fill(r->p.mem[1].p, MEM, 2);
}

/* @n good WRs of @len bytes, every third one unsignaled. */
static void make_jobs(struct run *r, int n, enum ibv_wr_opcode op, uint32_t len)
{
	struct vu_mem *local = &r->p.mem[0], *remote = &r->p.mem[1];
	size_t third = len / 3;

	r->n = n;
	for (int i = 0; i < n; i++) {
		struct job *j = &r->job[i];

		*j = (struct job){.op = op,
				  .len = len,
				  .remote = remote->p + (size_t)i * len,
				  .rkey = remote->mr->rkey,
				  .signaled = i % 3 != 1};
		for (size_t k = 0; k < 3; k++) {
			j->local[k] = local->p + (size_t)i * len + k * third;
			j->lkey[k] = local->mr->lkey;
		}
	}
}

static int job_sges(const struct job *j, struct ibv_sge *sge)
{
	uint32_t third = j->len / 3;

	for (int k = 0; k < 3; k++)
		sge[k] = (struct ibv_sge){(uintptr_t)j->local[k],
					  k < 2 ? third : j->len - 2 * third, j->lkey[k]};
	if (j->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge[0].length = 8;
		return 1;
	}
	return j->len ? 3 : 0;
}

/* All of them in one chain. */
static void post_jobs(struct run *r)
{
	struct ibv_send_wr wr[MAX_WR];
	struct ibv_sge sge[MAX_WR][3];

	for (int i = 0; i < r->n; i++) {
		const struct job *j = &r->job[i];

		wr[i] = vu_wr(j->op, sge[i], ID0 + (uint64_t)i,
			      j->signaled ? IBV_SEND_SIGNALED : 0);
		wr[i].num_sge = job_sges(j, sge[i]);
		vu_wr_remote(&wr[i], j->remote, j->rkey);
		wr[i].next = i + 1 < r->n ? &wr[i + 1] : NULL;
	}
	vu_must_post(r->p.qp[0].qp, wr);
	memset(wr, 0xa5, sizeof(wr));
	memset(sge, 0xa5, sizeof(sge));
}

/* ---- the list of completions ---- */

/* Until nothing comes for QUIET seconds, or the last WR has its completion. */
static void collect(struct run *r)
{
	double patience = 20; /* for the first one: retries take their time */

	r->got = 0;
	while (r->got < (int)VU_ARRAY(r->wc)) {
		if (!vu_cq_collect(&r->p.scq[0], 1, &r->wc[r->got], patience))
			break;
		r->got++;
		patience = QUIET;
		if (r->wc[r->got - 1].wr_id == ID0 + (uint64_t)r->n - 1)
			patience = 0.05; /* for one too many */
	}
}

static void print_list(const struct run *r, bool canonical)
{
	char line[1024];
	int at = snprintf(line, sizeof(line), "%s:", r->name);

	for (int i = 0; i < r->got; i++)
		at += snprintf(line + at, sizeof(line) - (size_t)at, " %d=%d",
			       (int)(r->wc[i].wr_id - ID0), (int)r->wc[i].status);
	if (canonical)
		vu_log("%s\n", line);
	else
		vu_note("%s\n", line);
}

__attribute__((noreturn)) static void bad_list(const struct run *r, const char *why, int at)
{
	char line[1024];
	int len = 0;

	line[0] = 0;
	for (int i = 0; i < r->got; i++)
		len += snprintf(line + len, sizeof(line) - (size_t)len, " %d=%d",
				(int)(r->wc[i].wr_id - ID0), (int)r->wc[i].status);
	vu_die("%s: %s, at entry %d of (WR=status):%s", r->name, why, at, line);
}

/* The failed WR: index and status against the verdict. */
static void judge_failure(const struct run *r, const struct verdict *v, int entry, int index)
{
	if (v->fail >= 0 && index != v->fail && !v->may_be_silent)
		bad_list(r, "another WR failed than should", entry);
	if (!(v->status & BIT(r->wc[entry].status)))
		bad_list(r, "not the right status", entry);
}

/* WRs [from, to) have no completion: right only if they succeeded unsignaled. */
static void judge_gap(const struct run *r, int entry, int from, int to)
{
	for (int i = from; i < to; i++)
		if (r->job[i].signaled)
			bad_list(r, "a signaled WR has no completion, or the order is wrong",
				 entry);
}

static void judge(const struct run *r, const struct verdict *v)
{
	int next = 0, index, failed = -1;

	for (int k = 0; k < r->got; k++) {
		index = (int)(r->wc[k].wr_id - ID0);
		if (index < next || index >= r->n)
			bad_list(r, "a completion twice, out of order or of no WR", k);
		if (r->wc[k].qp_num != r->p.qp[0].qp->qp_num)
			bad_list(r, "a wrong qp_num", k);
		if (failed >= 0 && r->wc[k].status != IBV_WC_WR_FLUSH_ERR)
			bad_list(r, "not flushed after an error", k);
		if (failed >= 0 && index != next)
			bad_list(r, "a WR was not flushed", k);
		if (failed < 0 && !v->may_be_silent)
			judge_gap(r, k, next, index);
		if (failed < 0 && r->wc[k].status == IBV_WC_SUCCESS && !r->job[index].signaled)
			bad_list(r, "success of an unsignaled WR", k);
		if (failed < 0 && r->wc[k].status != IBV_WC_SUCCESS) {
			judge_failure(r, v, k, index);
			failed = index;
		}
		next = index + 1;
	}
	if (v->fail >= 0 && failed < 0 && !v->may_be_silent)
		bad_list(r, "nothing failed", r->got);
	if (failed >= 0 && v->flush == FLUSH_MUST && next != r->n)
		bad_list(r, "WRs at the end were not flushed", r->got);
	if (failed < 0)
		judge_gap(r, r->got, next, v->fail < 0 ? r->n : next);
}

static void finish(struct run *r, const struct verdict *v, bool canonical)
{
	collect(r);
	print_list(r, canonical);
	judge(r, v);
	vu_pair_close(&r->p);
}

/* ---- a WR that the target refuses ---- */

static void bad_rkey(const char *name, enum ibv_wr_opcode op, uint32_t len, int at)
{
	struct verdict v = {at, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	make_jobs(&r, 8, op, len);
	r.job[at].rkey ^= 0x5500;
	post_jobs(&r);
	finish(&r, &v, true);
}

static void case_rkey_write_first(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 0);
}
static void case_rkey_write(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 3);
}
static void case_rkey_write_unsignaled(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 4);
}
static void case_rkey_write_last(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 7);
}
static void case_rkey_write_small(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 30, 3);
}
static void case_rkey_read(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_READ, 100000, 3);
}
static void case_rkey_atomic(const char *name)
{
	bad_rkey(name, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 3);
}

/* The target range leaves its MR after @inside bytes. */
static void bad_range(const char *name, enum ibv_wr_opcode op, uint32_t inside)
{
	struct verdict v = {3, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	const uint32_t len = 300000, room = 1u << 20;
	struct ibv_mr *mr;
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	mr = vu_reg(&r.p.dev[1], r.p.mem[1].p + MEM - 2 * room, room, VU_ACCESS);
	make_jobs(&r, 6, op, len);
	r.job[3].rkey = mr->rkey;
	r.job[3].remote = r.p.mem[1].p + MEM - room - inside;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	/* nothing after the end of the MR may have changed */
	vu_fill(r.p.mem[0].p, MEM, 2);
	vu_check(!memcmp(r.p.mem[0].p + MEM - room, r.p.mem[1].p + MEM - room, room),
		 "%s: bytes beyond the MR were written", name);
	vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	vu_pair_close(&r.p);
}

static void case_range_first(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 10);
}
static void case_range_middle(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 150000);
}
static void case_range_last(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 299999);
}
static void case_range_read_middle(const char *name)
{
	bad_range(name, IBV_WR_RDMA_READ, 150000);
}
static void case_range_read_last(const char *name)
{
	bad_range(name, IBV_WR_RDMA_READ, 299999);
}

static void case_not_writable(const char *name)
{
	struct verdict v = {2, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	struct ibv_mr *mr;
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	mr = vu_reg(&r.p.dev[1], r.p.mem[1].p, MEM, IBV_ACCESS_REMOTE_READ);
	make_jobs(&r, 4, IBV_WR_RDMA_WRITE, 50000);
	r.job[2].rkey = mr->rkey;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	vu_pair_close(&r.p);
}

/* ---- a WR that the initiator itself cannot do ---- */

/*
 * rxe 6.1 finds a bad lkey while it builds packets and gives LOC_QP_OP_ERR or LOC_PROT_ERR or a
 * flush for it; which one depends on the packet. The specification says LOC_PROT_ERR.
 */
#define LOCAL_ERRORS                                                                      \
	(BIT(IBV_WC_LOC_PROT_ERR) | BIT(IBV_WC_LOC_QP_OP_ERR) | BIT(IBV_WC_LOC_LEN_ERR) | \
	 BIT(IBV_WC_WR_FLUSH_ERR))

static void bad_lkey(const char *name, enum ibv_wr_opcode op, int sge)
{
	struct verdict v = {3, LOCAL_ERRORS, FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	v.may_be_silent = r.p.dev[0].is_rxe;
	make_jobs(&r, 6, op, 300000);
	r.job[3].lkey[sge] ^= 0x5500;
	post_jobs(&r);
	finish(&r, &v, !v.may_be_silent);
}

static void case_lkey_write_first(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 0);
}
static void case_lkey_write_middle(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 1);
}
static void case_lkey_write_last(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 2);
}
static void case_lkey_read_first(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_READ, 0);
}
static void case_lkey_read_last(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_READ, 2);
}

/* ---- receives ---- */

static void post_recvs(struct run *r, int n, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)r->p.mem[1].p, len, r->p.mem[1].mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	for (int i = 0; i < n; i++) {
		wr.wr_id = (uint64_t)i;
		sge.addr = (uintptr_t)r->p.mem[1].p + (uintptr_t)i * len;
		vu_must_recv(r->p.qp[1].qp, &wr);
	}
}

static void no_receive(const char *name, uint8_t rnr_retry, int ready, uint32_t len)
{
	struct verdict v = {ready, BIT(IBV_WC_RNR_RETRY_EXC_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	r.link.rnr_retry = rnr_retry;
	connect_run(&r);
	post_recvs(&r, ready, len);
	make_jobs(&r, 6, IBV_WR_SEND, len);
	post_jobs(&r);
	finish(&r, &v, true);
}

static void case_rnr_retry_0(const char *name)
{
	no_receive(name, 0, 0, 5000);
}
static void case_rnr_retry_1(const char *name)
{
	no_receive(name, 1, 2, 50000);
}

static void case_rnr_late_receive(const char *name)
{
	struct verdict v = {-1, 0, FLUSH_MUST, false};
	struct ibv_wc wc[6];
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	make_jobs(&r, 6, IBV_WR_SEND, 50000);
	post_jobs(&r);
	vu_sleep(0.2);
	vu_check(!ibv_poll_cq(r.p.scq[0].cq, 1, wc), "a SEND completed without a receive");
	post_recvs(&r, 6, 50000);
	vu_check(vu_cq_collect(&r.p.rcq[1], 6, wc, 20) == 6, "%s: not all received", name);
	for (int i = 0; i < 6; i++)
		vu_check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)i &&
				 wc[i].byte_len == 50000,
			 "%s: receive %d", name, i);
	vu_check(!memcmp(r.p.mem[0].p, r.p.mem[1].p, 50000), "%s: wrong bytes", name);
	finish(&r, &v, true);
}

static void case_receive_too_short(const char *name)
{
	/* REM_INV_REQ_ERR by the book, REM_OP_ERR on rxe */
	struct verdict v = {2, BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR), FLUSH_MUST,
			    false};
	struct ibv_wc wc[4];
	struct run r;
	int n;

	open_run(&r, name);
	connect_run(&r);
	post_recvs(&r, 4, 20000);
	make_jobs(&r, 4, IBV_WR_SEND, 20000);
	r.job[2].len = 20010;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	n = vu_cq_collect(&r.p.rcq[1], 4, wc, QUIET);
	vu_check(n >= 3 && wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS &&
			 wc[2].status != IBV_WC_SUCCESS,
		 "%s: %d receive completions, the third %d", name, n,
		 n > 2 ? (int)wc[2].status : -1);
	vu_log("%s: %d receive completions, %d\n", name, n, (int)wc[2].status);
	vu_pair_close(&r.p);
}

static void case_receives_flushed(const char *name)
{
	struct ibv_wc wc[5];
	struct run r;
	int n;

	open_run(&r, name);
	connect_run(&r);
	post_recvs(&r, 5, 100);
	vu_check(!vu_qp_to_state(r.p.qp[1].qp, IBV_QPS_ERR), "modify to ERR");
	n = vu_cq_collect(&r.p.rcq[1], 5, wc, 5);
	vu_log("%s: %d\n", name, n);
	vu_check(n == 5, "%s: %d of 5 receives flushed", name, n);
	for (int i = 0; i < n; i++)
		vu_check(wc[i].wr_id == (uint64_t)i && wc[i].status == IBV_WC_WR_FLUSH_ERR,
			 "%s: entry %d: wr_id %d status %d", name, i, (int)wc[i].wr_id,
			 (int)wc[i].status);
	vu_pair_close(&r.p);
}

/* ---- the peer does not answer ---- */

static void case_retry_exceeded(const char *name)
{
	struct verdict v = {0, BIT(IBV_WC_RETRY_EXC_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	r.link.retry_cnt = 1;
	r.link.timeout = 12; /* 17 ms */
	connect_run(&r);
	vu_check(!vu_qp_to_state(r.p.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
	make_jobs(&r, 8, IBV_WR_RDMA_WRITE, 100000);
	post_jobs(&r);
	finish(&r, &v, true);
}

enum gone { GONE_ERR, GONE_RESET, GONE_DESTROYED };

/* The peer's QP goes away while large WRITEs are under way. */
static void peer_gone(const char *name, enum ibv_wr_opcode op, enum gone how)
{
	struct verdict v = {-1, BIT(IBV_WC_RETRY_EXC_ERR) | BIT(IBV_WC_REM_OP_ERR), FLUSH_MUST,
			    false};
	struct run r;

	open_run(&r, name);
	r.link.retry_cnt = 2;
	r.link.timeout = 14; /* 67 ms */
	connect_run(&r);
	make_jobs(&r, 8, op, 1u << 20);
	post_jobs(&r);
	vu_sleep(0.03);
	if (how == GONE_DESTROYED)
		vu_qp_destroy(&r.p.qp[1]);
	else
		vu_check(!vu_qp_to_state(r.p.qp[1].qp,
					 how == GONE_ERR ? IBV_QPS_ERR : IBV_QPS_RESET),
			 "modify the peer");
	finish(&r, &v, false);
}

static void case_peer_to_error(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_ERR);
}
static void case_rough_peer_to_reset(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_RESET);
}
static void case_peer_destroyed(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_DESTROYED);
}
static void case_peer_destroyed_read(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_READ, GONE_DESTROYED);
}

/* ---- the QP itself is taken away ---- */

static void case_to_error_full_queue(const char *name)
{
	struct verdict v = {-1, BIT(IBV_WC_WR_FLUSH_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	make_jobs(&r, MAX_WR, IBV_WR_RDMA_WRITE, MEM / MAX_WR);
	post_jobs(&r);
	vu_sleep(0.01);
	vu_check(!vu_qp_to_state(r.p.qp[0].qp, IBV_QPS_ERR), "modify to ERR");
	vu_check(vu_qp_state(r.p.qp[0].qp) == IBV_QPS_ERR, "%s: not in ERR", name);
	finish(&r, &v, false);
}

/* Posted to a QP in ERR: to be flushed; rxe 6.1 may forget them. */
static void case_post_in_error(const char *name)
{
	struct verdict v = {-1, BIT(IBV_WC_WR_FLUSH_ERR), FLUSH_MAY, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	vu_check(!vu_qp_to_state(r.p.qp[0].qp, IBV_QPS_ERR), "modify to ERR");
	make_jobs(&r, 5, IBV_WR_RDMA_WRITE, 5000);
	for (int i = 0; i < r.n; i++)
		r.job[i].signaled = false; /* flushed ones have a completion all the same */
	post_jobs(&r);
	if (!r.p.dev[0].is_rxe)
		v.flush = FLUSH_MUST;
	r.got = vu_cq_collect(&r.p.scq[0], r.n, r.wc, 1);
	print_list(&r, false);
	judge(&r, &v);
	vu_pair_close(&r.p);
}

/* Both QPs of the pair back to work. */
static void revive(struct run *r)
{
	vu_check(!vu_qp_to_state(r->p.qp[0].qp, IBV_QPS_RESET), "modify to RESET");
	vu_check(!vu_qp_to_state(r->p.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
	vu_connect(&r->p.dev[0], r->p.qp[0].qp, &r->p.dev[1], r->p.qp[1].qp, &r->link);
}

static void drop_completions(struct run *r)
{
	struct ibv_wc wc[2 * MAX_WR];

	vu_cq_collect(&r->p.scq[0], 2 * MAX_WR, wc, 0.1);
}

/* A good batch on a QP that has seen worse: all complete, in order, with the right bytes. */
static void work_again(struct run *r)
{
	struct verdict v = {-1, 0, FLUSH_MUST, false};

	vu_fill(r->p.mem[0].p, MEM, 77);
	make_jobs(r, 7, IBV_WR_RDMA_WRITE, 99999);
	post_jobs(r);
	collect(r);
	print_list(r, true);
	judge(r, &v);
	for (int i = 0; i < r->n; i++)
		vu_check(!memcmp(r->job[i].remote, r->job[i].local[0], 33333),
			 "%s: wrong bytes after reuse", r->name);
}

/*
 * RESET with a full queue. The peer is deaf, so that nothing is on the wire: rxe 6.1 corrupts its
 * own reference counts when a QP is reset while packets of it arrive.
 */
static void case_reset_and_reuse(const char *name)
{
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	for (int round = 0; round < 3; round++) {
		vu_check(!vu_qp_to_state(r.p.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
		make_jobs(&r, 8, IBV_WR_RDMA_WRITE, 1u << 16);
		post_jobs(&r);
		vu_sleep(0.2);
		revive(&r);
		/* they are gone without a trace */
		vu_check(!vu_cq_collect(&r.p.scq[0], 1, r.wc, 0.1), "%s: a completion", name);
		work_again(&r);
	}
	vu_pair_close(&r.p);
}

/* The same while the WRs are on the wire; whatever had completed may still be in the CQ. */
static void case_rough_reset_and_reuse(const char *name)
{
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	for (int round = 0; round < 3; round++) {
		make_jobs(&r, 8, IBV_WR_RDMA_WRITE, 1u << 19);
		post_jobs(&r);
		vu_sleep(0.005 * round);
		revive(&r);
		drop_completions(&r);
		work_again(&r);
	}
	vu_pair_close(&r.p);
}

static void case_error_and_reuse(const char *name)
{
	struct verdict v = {2, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	for (int round = 0; round < 3; round++) {
		make_jobs(&r, 8, IBV_WR_RDMA_WRITE, 100000);
		r.job[2].rkey ^= 0x5500;
		post_jobs(&r);
		collect(&r);
		judge(&r, &v);
		revive(&r);
		work_again(&r);
	}
	vu_pair_close(&r.p);
}

/* Destroyed with work queued: what the CQ still shows is a legal beginning of the list. */
static void case_destroy_with_work(const char *name)
{
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	for (int round = 0; round < 5; round++) {
		struct verdict v = {-1, BIT(IBV_WC_WR_FLUSH_ERR), FLUSH_MAY, false};
		uint32_t num = r.p.qp[0].qp->qp_num;

		make_jobs(&r, MAX_WR, IBV_WR_RDMA_WRITE, MEM / MAX_WR);
		post_jobs(&r);
		vu_sleep(0.003 * round);
		vu_qp_destroy(&r.p.qp[0]);
		vu_qp_destroy(&r.p.qp[1]);
		r.got = vu_cq_collect(&r.p.scq[0], 2 * MAX_WR, r.wc, 0.2);
		print_list(&r, false);
		for (int i = 0; i < r.got; i++)
			vu_check(r.wc[i].qp_num == num, "%s: an entry of QP %u", name,
				 r.wc[i].qp_num);
		r.n = r.got ? (int)(r.wc[r.got - 1].wr_id - ID0) + 1 : 0;
		vu_pair_make_qps(&r.p, &r.spec);
		for (int i = 0; i < r.got; i++)
			r.wc[i].qp_num = r.p.qp[0].qp->qp_num; /* judge() compares it */
		judge(&r, &v);
	}
	work_again(&r);
	vu_pair_close(&r.p);
}

/* One failing QP must leave its neighbour on the same CQ alone. */
static void case_neighbour_unharmed(const char *name)
{
	struct ibv_wc wc[2 * MAX_WR];
	struct vu_qp other[2], first[2];
	int good = 0, bad = 0, n;
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	memcpy(first, r.p.qp, sizeof(first));
	vu_pair_make_qps(&r.p, &r.spec); /* a second pair on the same CQs */
	memcpy(other, r.p.qp, sizeof(other));
	make_jobs(&r, 6, IBV_WR_RDMA_WRITE, 200000);
	for (int i = 0; i < r.n; i++)
		r.job[i].signaled = true;
	post_jobs(&r);
	memcpy(r.p.qp, first, sizeof(first));
	r.job[0].rkey ^= 0x5500;
	post_jobs(&r);
	n = vu_cq_collect(&r.p.scq[0], 12, wc, 20);
	for (int i = 0; i < n; i++) {
		if (wc[i].qp_num == first[0].qp->qp_num)
			bad += wc[i].status != IBV_WC_SUCCESS;
		else
			good += wc[i].status == IBV_WC_SUCCESS;
	}
	vu_check(good == 6 && bad == 6, "%s: %d of 6 good, %d of 6 failed", name, good, bad);
	vu_log("%s: %d %d\n", name, good, bad);
	vu_qp_destroy(&other[0]);
	vu_qp_destroy(&other[1]);
	vu_pair_close(&r.p);
}

/* ---- the table ---- */

static const struct {
	const char *name;
	void (*run)(const char *name);
	bool rough; /* harms the kernel where a driver is weak: only with --rough */
} cases[] = {
	{"rkey-write-first", case_rkey_write_first, false},
	{"rkey-write", case_rkey_write, false},
	{"rkey-write-unsignaled", case_rkey_write_unsignaled, false},
	{"rkey-write-last", case_rkey_write_last, false},
	{"rkey-write-small", case_rkey_write_small, false},
	{"rkey-read", case_rkey_read, false},
	{"rkey-atomic", case_rkey_atomic, false},
	{"range-first", case_range_first, false},
	{"range-middle", case_range_middle, false},
	{"range-last", case_range_last, false},
	{"range-read-middle", case_range_read_middle, false},
	{"range-read-last", case_range_read_last, false},
	{"not-writable", case_not_writable, false},
	{"lkey-write-first", case_lkey_write_first, false},
	{"lkey-write-middle", case_lkey_write_middle, false},
	{"lkey-write-last", case_lkey_write_last, false},
	{"lkey-read-first", case_lkey_read_first, false},
	{"lkey-read-last", case_lkey_read_last, false},
	{"rnr-retry-0", case_rnr_retry_0, false},
	{"rnr-retry-1", case_rnr_retry_1, false},
	{"rnr-late-receive", case_rnr_late_receive, false},
	{"receive-too-short", case_receive_too_short, false},
	{"receives-flushed", case_receives_flushed, false},
	{"retry-exceeded", case_retry_exceeded, false},
	{"peer-to-error", case_peer_to_error, false},
	{"peer-destroyed", case_peer_destroyed, false},
	{"peer-destroyed-read", case_peer_destroyed_read, false},
	{"to-error-full-queue", case_to_error_full_queue, false},
	{"post-in-error", case_post_in_error, false},
	{"reset-and-reuse", case_reset_and_reuse, false},
	{"error-and-reuse", case_error_and_reuse, false},
	{"destroy-with-work", case_destroy_with_work, false},
	{"neighbour-unharmed", case_neighbour_unharmed, false},
	{"rough-reset-and-reuse", case_rough_reset_and_reuse, true},
	{"rough-peer-to-reset", case_rough_peer_to_reset, true},
};

int main(int argc, char **argv)
{
	const char *only = NULL;
	bool list = false, rough = false;
	const struct vu_opt opts[] = {
		{"case", VU_OPT_STR, &only, "run this case only"},
		{"rough", VU_OPT_FLAG, &rough,
		 "also the cases that rxe 6.1 does not survive (resets under load)"},
		{"list", VU_OPT_FLAG, &list, "print the names of the cases"},
	};
	int n = 0;

	vu.timeout = 120;
	vu_parse(argc, argv, "faults", "the completions of work requests that fail", opts,
		 VU_ARRAY(opts));
	for (size_t i = 0; i < VU_ARRAY(cases); i++) {
		if (list) {
			puts(cases[i].name);
			continue;
		}
		if (only ? strcmp(only, cases[i].name) : cases[i].rough && !rough)
			continue;
		cases[i].run(cases[i].name);
		n++;
	}
	if (list)
		return 0;
	vu_check(n, "no case \"%s\"; see --list", only);
	return vu_pass("%d cases", n);
}
