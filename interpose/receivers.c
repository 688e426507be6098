/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that only receive: work queues of receive side scaling, whose CQ is busy while they live,
 * and XRC QPs of another process that this one opened.
 */
#include "interpose/shim.h"

static void count_user(struct ibv_cq *ibv, int n)
{
	struct cq *cq = cq_of(ibv);

	if (cq)
		add_relaxed(&cq->users, n);
}

struct ibv_wq *wq_made(struct ibv_wq *wq)
{
	if (wq)
		count_user(wq->cq, 1);
	return wq;
}

struct ibv_wq *hook_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	return wq_made(ctx_of(context)->create_wq(context, attr));
}

int hook_destroy_wq(struct ibv_wq *wq)
{
	struct ibv_cq *cq = wq->cq;
	int err = ctx_of(wq->context)->destroy_wq(wq);

	if (!err)
		count_user(cq, -1);
	return err;
}

struct ibv_qp *hook_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct ibv_qp *ibv = ctx_of(context)->open_qp(context, attr);
	struct ibv_qp_init_attr none = {.qp_type = IBV_QPT_XRC_RECV};

	if (ibv)
		qp_adopt(ibv, &none, RNICE_UNC_SHARED_QP);
	return ibv;
}
