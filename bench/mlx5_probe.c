/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one call of verbs costs in the real libmlx5, on the emulated ConnectX.
 *
 *	mlx5_probe post|wr|recv|poll|ex ROUNDS		prints nanoseconds per call, one line a
 *round
 *
 *	post, wr	an inline RDMA WRITE of 8 bytes, unsignaled, by ibv_post_send() or ibv_wr_*
 *	recv		ibv_post_recv() of one receive
 *	poll, ex	one completion by ibv_poll_cq(), or by ibv_start_poll() and two
 *ibv_wc_read_*()
 *
 * The NIC takes no part in what is timed: sends and receives are posted where it does not look, and
 *it has written all completions before the first is polled. measured() has all of it, for
 *callgrind.
 */
#include "bench/mlx5_util.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 4096

static struct device dev;
static struct ibv_cq *cq;
static struct ibv_cq_ex *ex;
static struct ibv_qp *qp;
static struct ibv_qp_ex *qpx;
static struct ibv_mr *mr;
static volatile uint64_t word[2]; /* the source of WRITEs, and their target */

static void make_objects(void)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = DEPTH + 1, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.pd = NULL,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 8},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	dev = open_device();
	ex = ibv_create_cq_ex(dev.ctx, &cq_attr);
	if (!ex)
		die("no CQ");
	cq = ibv_cq_ex_to_cq(ex);
	attr.pd = dev.pd;
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp_ex(dev.ctx, &attr);
	mr = ibv_reg_mr(dev.pd, (void *)word, sizeof(word),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!qp || !mr)
		die("no QP or MR");
	qpx = ibv_qp_to_qp_ex(qp);
}

static void post(unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)&word[0], sizeof(word[0]), mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = flags,
					 .wr.rdma = {(uintptr_t)&word[1], mr->rkey},
				 };

	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
}

static void call_post(void)
{
	post(IBV_SEND_INLINE);
}

static void call_wr(void)
{
	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_INLINE;
	ibv_wr_rdma_write(qpx, mr->rkey, (uintptr_t)&word[1]);
	ibv_wr_set_inline_data(qpx, (void *)&word[0], sizeof(word[0]));
	if (ibv_wr_complete(qpx))
		die("ibv_wr_complete");
}

static void call_recv(void)
{
	struct ibv_sge sge = {(uintptr_t)&word[1], sizeof(word[1]), mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

static void call_poll(void)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1 || wc.status)
		die("ibv_poll_cq");
}

static void call_ex(void)
{
	struct ibv_poll_cq_attr attr = {0};

	if (ibv_start_poll(ex, &attr) || ex->status ||
	    ibv_wc_read_opcode(ex) != IBV_WC_RDMA_WRITE || ibv_wc_read_qp_num(ex) != qp->qp_num)
		die("ibv_start_poll");
	ibv_end_poll(ex);
}

/* The NIC works until the last WRITE has landed, and then some time to write its completion. */
static void fill_cq(void)
{
	double limit = now() + 20;

	connect_qp(qp);
	for (uint64_t i = 0; i < DEPTH; i++) {
		word[0] = i == DEPTH - 1;
		if (word[0])
			usleep(200000); /* the NIC may still be reading it for those before */
		post(IBV_SEND_SIGNALED);
	}
	while (!word[1])
		if (now() > limit)
			die("the NIC does not work");
	word[1] = 0;
	usleep(20000);
}

static void unseen(void)
{
	connect_unseen(qp);
}

static const struct mode {
	const char *name;
	void (*before)(void);
	void (*call)(void);
} modes[] = {
	{"post", unseen, call_post},  {"wr", unseen, call_wr},	{"recv", unseen, call_recv},
	{"poll", fill_cq, call_poll}, {"ex", fill_cq, call_ex},
};

__attribute__((noinline)) static void measured(void (*call)(void), long n)
{
	for (long i = 0; i < n; i++)
		call();
}

int main(int argc, char **argv)
{
	long n = argc > 3 ? strtol(argv[3], NULL, 10) : DEPTH;
	const struct mode *m = NULL;
	double begin;

	for (size_t i = 0; argc > 2 && n > 0 && n <= DEPTH && i < sizeof(modes) / sizeof(modes[0]);
	     i++)
		if (!strcmp(argv[1], modes[i].name))
			m = &modes[i];
	if (!m)
		die("usage: mlx5_probe post|wr|recv|poll|ex ROUNDS [CALLS]");
	make_objects();
	for (long r = strtol(argv[2], NULL, 10); r > 0; r--) {
		m->before();
		begin = now();
		measured(m->call, n);
		printf("%.2f\n", (now() - begin) / (double)n * 1e9);
	}
	return 0;
}
