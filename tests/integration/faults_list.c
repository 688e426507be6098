/* SPDX-License-Identifier: BSD-2-Clause */
#include "faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- set-up ---- */

void open_run(struct run *r, const char *name)
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
					.post = faults_api,
					.link = &r->link};
}

void connect_run(struct run *r)
{
	vu_pair_open(&r->p, &r->spec);
	vu_fill(r->p.mem[0].p, MEM, 1);
	vu_fill(r->p.mem[1].p, MEM, 2);
}

/* @n good WRs of @len bytes, every third one unsignaled. */
void make_jobs(struct run *r, int n, enum ibv_wr_opcode op, uint32_t len)
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

/* librxe's builders cannot do unequal SGEs. */
static bool use_builders(const struct run *r, const struct ibv_send_wr *wr)
{
	static unsigned int calls;

	for (; r->p.dev[0].is_rxe && wr; wr = wr->next)
		if (!vu_wr_can(wr))
			return false;
	return faults_api == VU_POST_WR || (faults_api == VU_POST_MIXED && calls++ % 2);
}

/* All of them in one chain. */
void post_jobs(struct run *r)
{
	struct ibv_send_wr *bad;
	int err;
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
	err = vu_qp_post(&r->p.qp[0], wr, &bad, use_builders(r, wr));
	vu_check(!err, "%s: posting: %s", r->name, strerror(err));
	memset(wr, 0xa5, sizeof(wr));
	memset(sge, 0xa5, sizeof(sge));
}

/* ---- the list of completions ---- */

/* Until nothing comes for QUIET seconds, or the last WR has its completion. */
void collect(struct run *r)
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

void print_list(const struct run *r, bool canonical)
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

void judge(const struct run *r, const struct verdict *v)
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

void finish(struct run *r, const struct verdict *v, bool canonical)
{
	collect(r);
	print_list(r, canonical);
	judge(r, v);
	vu_pair_close(&r->p);
}
