/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings doorbells for the trace: 40 RC QPs one after the other, then four QPs on thread domains
 * of their own. Prints "qp INDEX QPN REGISTER" or "td INDEX QPN REGISTER", where REGISTER is what
 * mlx5dv_init_obj() says: its offset in the page.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "pair.h"

enum { QPS = 40, TDS = 4 };

static union ibv_gid gid;
static const struct pair_opt opt = {0};

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {16, 16, 1, 1, 64}};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	must(qp != NULL);
	must(!qp_to_rts(qp, qp->qp_num, &gid, &opt)); /* to itself */
	return qp;
}

static void ring(const char *kind, int i, struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &dv}};
	struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + 64;
	wr.wr.rdma.rkey = mr->rkey;
	must(!ibv_post_send(qp, &wr, &bad));
	must(wait_wc(qp->send_cq).status == IBV_WC_SUCCESS);
	printf("%s %d 0x%06x 0x%03x\n", kind, i, qp->qp_num,
	       (unsigned)((uintptr_t)dv.bf.reg & 0xfff));
}

int main(void)
{
	struct ibv_context *ctx = open_device(NULL);
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	static char mem[4096];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	int i;

	must(pd != NULL);
	must(!ibv_query_gid(ctx, 1, 1, &gid));
	must((mr = ibv_reg_mr(pd, mem, sizeof(mem),
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
	must((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)) != NULL);
	for (i = 0; i < QPS; i++)
		ring("qp", i, new_qp(pd, cq), mr);
	for (i = 0; i < TDS; i++) {
		struct ibv_td_init_attr ta = {0};
		struct ibv_parent_domain_init_attr pa = {.pd = pd, .td = ibv_alloc_td(ctx, &ta)};
		struct ibv_pd *domain = pa.td ? ibv_alloc_parent_domain(ctx, &pa) : NULL;

		must(domain != NULL);
		ring("td", i, new_qp(domain, cq), mr);
	}
	return 0;
}
