/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * resetpoll: a thread posts between start_poll and end_poll of its receive CQ, when another one has
 * begun to reset the QP. The CQ is one with IBV_WC_EX_WITH_TM_INFO: its start_poll is the
 * provider's own under any preload, and holds the provider's lock until end_poll.
 */
#include "verbs_util.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define LEN 64

static struct vu_dev dev[2];
static struct vu_cq scq, peer_cq;
static struct ibv_cq_ex *rcq;
static struct vu_mem mem[2];
static struct vu_qp qp[2];
static _Atomic bool began;

static void make_qp(int side, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {.max_send_wr = 32, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC};

	vu_qp_create(&qp[side], &dev[side], &init, VU_POST_SEND);
}

static void open_all(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_TM_INFO};
	struct vu_link link;

	vu_dev_open_pair(dev);
	link = vu_link_default(&dev[0]);
	vu_cq_create(&scq, &dev[0], 64, NULL, VU_POLL_CQ, NULL);
	vu_cq_create(&peer_cq, &dev[1], 64, NULL, VU_POLL_CQ, NULL);
	rcq = ibv_create_cq_ex(dev[0].ctx, &attr);
	vu_check(rcq, "ibv_create_cq_ex: %s", strerror(errno));
	make_qp(0, scq.cq, ibv_cq_ex_to_cq(rcq));
	make_qp(1, peer_cq.cq, peer_cq.cq);
	vu_connect(&dev[0], qp[0].qp, &dev[1], qp[1].qp, &link);
	for (int i = 0; i < 2; i++)
		vu_mem_alloc(&mem[i], &dev[i], LEN, VU_ACCESS);
}

static int post(int side)
{
	struct ibv_sge sge = {(uintptr_t)mem[side].p, LEN, mem[side].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_SEND, &sge, 1, IBV_SEND_SIGNALED), *bad;

	return ibv_post_send(qp[side].qp, &wr, &bad);
}

static void enter_batch(void)
{
	struct ibv_sge sge = {(uintptr_t)mem[0].p, LEN, mem[0].mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	struct ibv_poll_cq_attr attr = {0};
	int err;

	vu_check(!ibv_post_recv(qp[0].qp, &wr, &bad) && !post(1), "posting failed");
	while ((err = ibv_start_poll(rcq, &attr)) == ENOENT)
		;
	vu_check(!err, "ibv_start_poll: %s", strerror(err));
}

static void *reset(void *arg)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	(void)arg;
	began = true;
	vu_check(!ibv_modify_qp(qp[0].qp, &attr, IBV_QP_STATE), "to RESET failed");
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	pthread_t thread;

	vu_parse(argc, argv, "resetpoll", "a post in a batch, and a reset", NULL, 0);
	open_all();
	enter_batch();
	vu_check(!pthread_create(&thread, NULL, reset, NULL), "no thread");
	while (!began)
		vu_sleep(0.01);
	vu_sleep(0.3);
	vu_at("posting in the batch");
	post(0); /* what it says depends on how far the reset is */
	ibv_end_poll(rcq);
	pthread_join(thread, NULL);
	vu_check(!ibv_query_qp(qp[0].qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp failed");
	vu_check(attr.qp_state == IBV_QPS_RESET, "the QP is not in RESET");
	return vu_pass("one batch");
}
