/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: creation, destruction, query. State changes are in qpstate.c.
 */
#include <stdlib.h>

#include "emu.h"

static struct emu_qp *slot_take(void)
{
	struct emu_seg *s = self.seg;
	struct emu_qp *qp = NULL;
	uint32_t i, n;

	shm_lock(&s->lock);
	for (n = 0, i = s->qp_hint; n < EMU_QPS; n++, i = (i + 1) % EMU_QPS)
		if (!atomic_load(&s->qp[i].h.used))
			break;
	if (n < EMU_QPS) {
		qp = &s->qp[i];
		s->qp_hint = (i + 1) % EMU_QPS; /* numbers are not reused at once */
		memset(qp, 0, sizeof(*qp));
		shm_mutex_init(&qp->rq_lock);
		qp->qpn = i + QPN_BASE;
		qp->h.proc = self.proc;
		atomic_store(&qp->h.used, 1);
	}
	shm_unlock(&s->lock);
	return qp;
}

struct emu_qp *qp_find(uint32_t qpn)
{
	uint32_t i = qpn - QPN_BASE;

	return i < EMU_QPS && atomic_load(&self.seg->qp[i].h.used) == 2 ? &self.seg->qp[i] : NULL;
}

struct qp_args {
	struct emu_handle *pd, *xrcd, *scq, *rcq, *srq;
	struct ib_uverbs_qp_cap cap;
	struct mlx5_ib_create_qp drv;
	uint32_t type, flags;
};

static bool pow2_or_zero(uint32_t n)
{
	return !(n & (n - 1));
}

static int check_args(struct qp_args *a)
{
	bool tgt = a->type == IBV_QPT_XRC_RECV, ini = a->type == IBV_QPT_XRC_SEND;

	if (tgt)
		return a->xrcd ? 0 : EINVAL;
	if (!ini && a->type != IBV_QPT_RC && a->type != IBV_QPT_UC && a->type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (!a->pd || !a->scq || (!a->rcq && !ini))
		return EINVAL;
	if (a->srq && self.seg->srq[a->srq->slot].type != IB_UVERBS_SRQT_BASIC)
		return EINVAL;
	if (!pow2_or_zero(a->drv.sq_wqe_count) || a->drv.sq_wqe_count > 32768 ||
	    !pow2_or_zero(a->drv.rq_wqe_count) || a->drv.rq_wqe_count > 32768)
		return EINVAL;
	if (a->drv.rq_wqe_count && (a->drv.rq_wqe_shift < 4 || a->drv.rq_wqe_shift > 9))
		return EINVAL;
	if (a->drv.flags & MLX5_QP_FLAG_SIGNATURE)
		return EOPNOTSUPP;
	return mem_exists(a->drv.buf_addr) && mem_exists(a->drv.db_addr) ? 0 : EFAULT;
}

static struct emu_handle *object(struct emu_req *r, uint16_t type, uint16_t attr)
{
	return handle_get(r->ctx, type, req_u64(r, attr, UINT64_MAX));
}

static int get_args(struct emu_req *r, struct qp_args *a)
{
	a->type = req_u64(r, UVERBS_ATTR_CREATE_QP_TYPE, 0);
	a->flags = req_u64(r, UVERBS_ATTR_CREATE_QP_FLAGS, 0);
	a->pd = object(r, UVERBS_OBJECT_PD, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
	a->xrcd = object(r, UVERBS_OBJECT_XRCD, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE);
	a->scq = object(r, UVERBS_OBJECT_CQ, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
	a->rcq = object(r, UVERBS_OBJECT_CQ, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
	a->srq = object(r, UVERBS_OBJECT_SRQ, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
	if (req_in(r, UVERBS_ATTR_CREATE_QP_CAP, &a->cap, sizeof(a->cap)) ||
	    req_in(r, UVERBS_ATTR_UHW_IN, &a->drv, sizeof(a->drv)))
		return EINVAL;
	if (req_attr(r, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) && !a->srq)
		return EINVAL;
	return check_args(a);
}

static void fill(struct emu_req *r, struct emu_qp *qp, const struct qp_args *a)
{
	qp->h.ctx = r->ctx->num;
	qp->h.dev = r->ctx->dev;
	qp->h.user_handle = req_u64(r, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0);
	qp->type = a->type;
	qp->uidx = a->drv.uidx & 0xffffff;
	qp->buf = a->drv.buf_addr;
	qp->dbrec = a->drv.db_addr;
	qp->sq_cnt = a->type == IBV_QPT_XRC_RECV ? 0 : a->drv.sq_wqe_count;
	qp->rq_cnt = a->type == IBV_QPT_XRC_RECV ? 0 : a->drv.rq_wqe_count;
	qp->rq_shift = a->drv.rq_wqe_shift;
	qp->uar_page = a->drv.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX ? a->drv.bfreg_index : 0;
	qp->scq = a->scq ? (int)a->scq->slot : -1;
	qp->rcq = a->rcq ? (int)a->rcq->slot : -1;
	qp->srq = a->srq ? (int)a->srq->slot : -1;
	qp->xrcd = a->xrcd ? (int)a->xrcd->slot : -1;
	qp->pd = a->pd ? a->pd->slot : 0;
	qp->sig_all = !!(a->flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL);
	qp->cap = a->cap;
	qp->cap.max_recv_wr = qp->rq_cnt;
	if (qp->rq_cnt)
		qp->cap.max_recv_sge = (1u << qp->rq_shift) / 16;
	qp->attr.qp_handle = UINT32_MAX;
	atomic_store(&qp->state, IBV_QPS_RESET);
}

static void count_users(struct qp_args *a, int step)
{
	if (a->pd)
		atomic_fetch_add(&a->pd->users, step);
	if (a->xrcd)
		atomic_fetch_add(&a->xrcd->users, step);
	if (a->scq)
		atomic_fetch_add(&self.seg->cq[a->scq->slot].users, step);
	if (a->rcq)
		atomic_fetch_add(&self.seg->cq[a->rcq->slot].users, step);
	if (a->srq)
		atomic_fetch_add(&self.seg->srq[a->srq->slot].users, step);
}

/*
 * In static mode the kernel picks the register: low-latency ones first, then the shared ones; 0 is
 * left out. The library counts four registers to a page, of which two can be used.
 */
static uint32_t static_bfreg(struct emu_req *r)
{
	uint32_t total = env_size("MLX5EMU_STATIC_BFREGS", 0), i;

	if (total < 16)
		return 0;
	i = r->ctx->next_bfreg++;
	i = i < 4 ? total - 4 + i : 1 + (i - 4) % (total - 5);
	return i / 2 * 4 + i % 2;
}

int qp_create(struct emu_req *r)
{
	struct mlx5_ib_create_qp_resp drv_resp = {0};
	struct qp_args a;
	struct emu_qp *qp;
	int h, err = get_args(r, &a);

	if (err)
		return err;
	qp = slot_take();
	if (!qp)
		return ENOMEM;
	h = handle_new(r->ctx, UVERBS_OBJECT_QP, qp - self.seg->qp);
	if (h < 0) {
		atomic_store(&qp->h.used, 0);
		return ENOMEM;
	}
	fill(r, qp, &a);
	count_users(&a, 1);
	nic_lock();
	atomic_store(&qp->h.used, 2);
	nic_own(&self.qps, &self.nqps, qp - self.seg->qp);
	nic_unlock();
	shm_wake(self.proc);
	drv_resp.bfreg_index = static_bfreg(r);
	req_out_handle(r, UVERBS_ATTR_CREATE_QP_HANDLE, h);
	req_out(r, UVERBS_ATTR_CREATE_QP_RESP_CAP, &qp->cap, sizeof(qp->cap));
	req_out(r, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qp->qpn, sizeof(qp->qpn));
	return req_out(r, UVERBS_ATTR_UHW_OUT, &drv_resp, sizeof(drv_resp));
}

/* A second handle on an XRC target QP, which may belong to another process. */
int qp_open(struct emu_req *r)
{
	struct ib_uverbs_open_qp cmd;
	struct ib_uverbs_create_qp_resp resp = {0};
	struct emu_handle *x;
	struct emu_qp *qp;
	int h;

	req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd));
	x = handle_get(r->ctx, UVERBS_OBJECT_XRCD, cmd.pd_handle);
	qp = qp_find(cmd.qpn);
	if (!x || !qp || qp->type != IBV_QPT_XRC_RECV || qp->xrcd != (int)x->slot)
		return EINVAL;
	h = handle_new(r->ctx, UVERBS_OBJECT_QP, qp - self.seg->qp);
	if (h < 0)
		return ENOMEM;
	handle_get(r->ctx, UVERBS_OBJECT_QP, h)->aux = 1; /* not the owner */
	atomic_fetch_add(&x->users, 1);
	resp.qp_handle = h;
	resp.qpn = qp->qpn;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static void drop_users(struct emu_ctx *ctx, const struct emu_qp *qp)
{
	int pd = handle_find(ctx, UVERBS_OBJECT_PD, qp->pd);
	int x = qp->xrcd < 0 ? -1 : handle_find(ctx, UVERBS_OBJECT_XRCD, qp->xrcd);

	if (pd >= 0)
		atomic_fetch_sub(&ctx->handles[pd].users, 1);
	if (x >= 0)
		atomic_fetch_sub(&ctx->handles[x].users, 1);
}

static void drop_queue_users(const struct emu_qp *qp)
{
	if (qp->scq >= 0)
		atomic_fetch_sub(&self.seg->cq[qp->scq].users, 1);
	if (qp->rcq >= 0)
		atomic_fetch_sub(&self.seg->cq[qp->rcq].users, 1);
	if (qp->srq >= 0)
		atomic_fetch_sub(&self.seg->srq[qp->srq].users, 1);
}

int qp_destroy(struct emu_ctx *ctx, uint64_t handle, uint32_t *events)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_QP, handle);
	struct emu_qp *qp;
	uint32_t slot;

	*events = 0;
	if (!h)
		return EINVAL;
	slot = h->slot;
	qp = &self.seg->qp[slot];
	drop_users(ctx, qp);
	if (!h->aux) {
		nic_lock();
		nic_catch_up(qp);
		shm_lock(&qp->rq_lock); /* a peer may be delivering */
		atomic_store(&qp->h.used, 1);
		shm_unlock(&qp->rq_lock);
		nic_disown(self.qps, &self.nqps, slot);
		model_forget(qp);
		mcast_forget(slot);
		if (ctx->async)
			queue_purge(ctx->async, SRC_QP_ASYNC, slot);
		*events = qp->async_read;
		drop_queue_users(qp);
		atomic_store(&qp->h.used, 0);
		nic_unlock();
	}
	handle_free(ctx, handle);
	return 0;
}

int qp_remove(struct emu_ctx *ctx, uint64_t handle, uint32_t *events)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_QP, handle);

	*events = 0;
	if (h && !h->aux && mcast_member(h->slot))
		return EBUSY;
	return qp_destroy(ctx, handle, events);
}

void qp_set_error(struct emu_qp *qp, uint32_t event)
{
	uint32_t old = atomic_exchange(&qp->state, IBV_QPS_ERR);

	if (event && old != IBV_QPS_ERR)
		atomic_fetch_or(&qp->events, 1u << event);
	shm_wake(qp->h.proc);
}

int qp_query(struct emu_req *r)
{
	struct ib_uverbs_query_qp cmd;
	struct ib_uverbs_query_qp_resp resp = {0};
	struct emu_handle *h;
	const struct emu_qp *qp;

	req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd));
	h = handle_get(r->ctx, UVERBS_OBJECT_QP, cmd.qp_handle);
	if (!h)
		return EINVAL;
	qp = &self.seg->qp[h->slot];
	resp.dest = qp->attr.dest;
	resp.alt_dest = qp->attr.alt_dest;
	resp.max_send_wr = qp->cap.max_send_wr;
	resp.max_recv_wr = qp->cap.max_recv_wr;
	resp.max_send_sge = qp->cap.max_send_sge;
	resp.max_recv_sge = qp->cap.max_recv_sge;
	resp.max_inline_data = qp->cap.max_inline_data;
	resp.qkey = qp->attr.qkey;
	resp.rq_psn = qp->attr.rq_psn;
	resp.sq_psn = qp->attr.sq_psn;
	resp.dest_qp_num = qp->attr.dest_qp_num;
	resp.qp_access_flags = qp->attr.qp_access_flags;
	resp.pkey_index = qp->attr.pkey_index;
	resp.qp_state = resp.cur_qp_state = atomic_load(&qp->state);
	resp.path_mtu = qp->attr.path_mtu;
	resp.path_mig_state = qp->attr.path_mig_state;
	resp.sq_draining = atomic_load(&qp->state) == IBV_QPS_SQD && !qp->sq_drained;
	resp.max_rd_atomic = qp->attr.max_rd_atomic;
	resp.max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	resp.min_rnr_timer = qp->attr.min_rnr_timer;
	resp.port_num = qp->attr.port_num;
	resp.timeout = qp->attr.timeout;
	resp.retry_cnt = qp->attr.retry_cnt;
	resp.rnr_retry = qp->attr.rnr_retry;
	resp.sq_sig_all = qp->sig_all;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}
