/* SPDX-License-Identifier: BSD-2-Clause */
#include "faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the QP itself is taken away ---- */

void case_to_error_full_queue(const char *name)
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
void case_post_in_error(const char *name)
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
void case_reset_and_reuse(const char *name)
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
void case_rough_reset_and_reuse(const char *name)
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

void case_error_and_reuse(const char *name)
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
void case_destroy_with_work(const char *name)
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
void case_neighbour_unharmed(const char *name)
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
