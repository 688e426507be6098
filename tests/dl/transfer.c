/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer.h"

#include <string.h>
#include <time.h>

static void connect_qp(const struct calls *v, struct loop *l, int i)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	check(!v->ibv_modify_qp(l->qp[i], &a,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
	a.dest_qp_num = l->qp[!i]->qp_num;
	a.min_rnr_timer = 12;
	a.ah_attr.port_num = 1;
	a.ah_attr.is_global = 1;
	a.ah_attr.grh.hop_limit = 1;
	check(!v->ibv_query_gid(l->ctx, 1, 0, &a.ah_attr.grh.dgid));
	check(!v->ibv_modify_qp(l->qp[i], &a,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7};
	a.rnr_retry = 7;
	check(!v->ibv_modify_qp(l->qp[i], &a,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					IBV_QP_MAX_QP_RD_ATOMIC));
}

void loop_open(const struct calls *v, struct loop *l, struct ibv_context *ctx)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};

	check(ctx);
	l->ctx = ctx;
	check((l->pd = v->ibv_alloc_pd(ctx)));
	check((l->cq = v->ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	check((l->mem = calloc(2, LOOP_LEN)));
	check((l->mr = v->ibv_reg_mr(l->pd, l->mem, 2 * LOOP_LEN,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	init.send_cq = l->cq;
	init.recv_cq = l->cq;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	check((l->qp[0] = v->ibv_create_qp(l->pd, &init)));
	check((l->qp[1] = v->ibv_create_qp(l->pd, &init)));
	connect_qp(v, l, 0);
	connect_qp(v, l, 1);
}

static void wait_done(struct loop *l, uint64_t wr_id)
{
	time_t end = time(NULL) + 30;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(l->cq, 1, &wc)))
		check(time(NULL) < end);
	check(n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

void loop_run(struct loop *l, unsigned int writes)
{
	struct ibv_sge sge = {(uintptr_t)l->mem, LOOP_LEN, l->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	unsigned int i;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)l->mem + LOOP_LEN;
	wr.wr.rdma.rkey = l->mr->rkey;
	for (i = 0; i < writes; i++) {
		memset(l->mem, (int)(i + 1), LOOP_LEN);
		wr.wr_id = 1000 + i;
		check(!ibv_post_send(l->qp[i % 2], &wr, &bad));
		wait_done(l, wr.wr_id);
		check(!memcmp(l->mem, l->mem + LOOP_LEN, LOOP_LEN));
	}
}

void loop_close(const struct calls *v, struct loop *l)
{
	check(!v->ibv_destroy_qp(l->qp[1]));
	check(v->ibv_destroy_cq(l->cq)); /* one QP is left: EBUSY, and the CQ goes on */
	check(!v->ibv_destroy_qp(l->qp[0]));
	check(!v->ibv_destroy_cq(l->cq));
	check(!v->ibv_dereg_mr(l->mr));
	check(!v->ibv_dealloc_pd(l->pd));
	free(l->mem);
}

struct ibv_context *open_nth(const struct calls *v, int n)
{
	struct ibv_context *ctx;
	struct ibv_device **list;
	int count;

	check((list = v->ibv_get_device_list(&count)) && count > n);
	ctx = v->ibv_open_device(list[n]);
	v->ibv_free_device_list(list);
	check(ctx);
	return ctx;
}

void show_stat(void)
{
	const char *command = getenv("DL_STAT");

	fflush(NULL);
	check(!command || !system(command));
}

void transfer(const struct calls *v)
{
	struct loop l;

	loop_open(v, &l, open_nth(v, 0));
	loop_run(&l, 4);
	show_stat();
	loop_close(v, &l);
	check(!v->ibv_close_device(l.ctx));
}
