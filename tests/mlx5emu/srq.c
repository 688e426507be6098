/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues, basic and XRC.
 *
 * The ring is a linked list through the next segment of each WQE, starting at index 0; the
 * doorbell record counts posts (mlx5/srq.c). The completion names the WQE by its index.
 */
#include "emu.h"

static struct emu_srq *slot_take(void)
{
	struct emu_seg *s = self.seg;
	struct emu_srq *srq = NULL;
	uint32_t i, n;

	shm_lock(&s->lock);
	for (n = 0, i = s->srq_hint; n < EMU_SRQS; n++, i = (i + 1) % EMU_SRQS)
		if (!atomic_load(&s->srq[i].h.used))
			break;
	if (n < EMU_SRQS) {
		srq = &s->srq[i];
		s->srq_hint = (i + 1) % EMU_SRQS;
		memset(srq, 0, sizeof(*srq));
		shm_mutex_init(&srq->lock);
		srq->srqn = i + 0x80;
		srq->h.proc = self.proc;
		atomic_store(&srq->h.used, 1);
	}
	shm_unlock(&s->lock);
	return srq;
}

struct emu_srq *srq_find(uint32_t srqn)
{
	uint32_t i = srqn - 0x80;

	return i < EMU_SRQS && atomic_load(&self.seg->srq[i].h.used) == 2 ? &self.seg->srq[i]
									  : NULL;
}

static uint32_t stride_for(uint32_t max_sge)
{
	uint32_t n = 32;

	while (n < 16 + 16 * max_sge)
		n *= 2;
	return n;
}

struct srq_args {
	struct emu_handle *pd, *xrcd, *cq;
	struct mlx5_ib_create_srq drv;
	uint32_t max_wr, max_sge, type;
};

static int get_args(struct emu_req *r, struct srq_args *a)
{
	a->type = req_u64(r, UVERBS_ATTR_CREATE_SRQ_TYPE, 0);
	a->max_wr = req_u64(r, UVERBS_ATTR_CREATE_SRQ_MAX_WR, 0);
	a->max_sge = req_u64(r, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 0);
	a->pd = handle_get(r->ctx, UVERBS_OBJECT_PD,
			   req_u64(r, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, UINT64_MAX));
	a->xrcd = handle_get(r->ctx, UVERBS_OBJECT_XRCD,
			     req_u64(r, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, UINT64_MAX));
	a->cq = handle_get(r->ctx, UVERBS_OBJECT_CQ,
			   req_u64(r, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UINT64_MAX));
	if (req_in(r, UVERBS_ATTR_UHW_IN, &a->drv, sizeof(a->drv)) || !a->pd)
		return EINVAL;
	if (a->type == IB_UVERBS_SRQT_TM)
		return EOPNOTSUPP;
	if (a->type == IB_UVERBS_SRQT_XRC && (!a->xrcd || !a->cq))
		return EINVAL;
	/* libmlx5 asks for ring size - 1, the wait queue included. */
	if (a->max_wr > 65535 || a->max_sge > 31 || a->drv.flags)
		return EINVAL;
	return mem_exists(a->drv.buf_addr) && mem_exists(a->drv.db_addr) ? 0 : EFAULT;
}

static void fill(struct emu_req *r, struct emu_srq *s, const struct srq_args *a)
{
	s->h.ctx = r->ctx->num;
	s->h.dev = r->ctx->dev;
	s->h.user_handle = req_u64(r, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0);
	s->buf = a->drv.buf_addr;
	s->dbrec = a->drv.db_addr;
	s->nwqe = a->max_wr + 1;
	s->max_sge = a->max_sge;
	s->stride = stride_for(a->max_sge);
	s->type = a->type;
	s->pd = a->pd->slot;
	s->xrcd = a->xrcd ? (int)a->xrcd->slot : -1;
	s->cq = a->cq ? (int)a->cq->slot : -1;
	/* Completions of an XRC SRQ carry its user index, as libmlx5 looks it up by that. */
	s->uidx = a->drv.uidx;
	s->limit = req_u64(r, UVERBS_ATTR_CREATE_SRQ_LIMIT, 0);
	atomic_fetch_add(&a->pd->users, 1);
	if (a->xrcd)
		atomic_fetch_add(&a->xrcd->users, 1);
	if (a->cq)
		atomic_fetch_add(&self.seg->cq[s->cq].users, 1);
}

int srq_create(struct emu_req *r)
{
	struct mlx5_ib_create_srq_resp drv_resp = {0};
	struct srq_args a;
	struct emu_srq *srq;
	int h, err = get_args(r, &a);

	if (err)
		return err;
	srq = slot_take();
	if (!srq)
		return ENOMEM;
	h = handle_new(r->ctx, UVERBS_OBJECT_SRQ, srq - self.seg->srq);
	if (h < 0) {
		atomic_store(&srq->h.used, 0);
		return ENOMEM;
	}
	fill(r, srq, &a);
	nic_lock();
	atomic_store(&srq->h.used, 2);
	nic_own(&self.srqs, &self.nsrqs, srq - self.seg->srq);
	nic_unlock();
	drv_resp.srqn = srq->srqn;
	req_out_handle(r, UVERBS_ATTR_CREATE_SRQ_HANDLE, h);
	req_out(r, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &a.max_wr, sizeof(a.max_wr));
	req_out(r, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &a.max_sge, sizeof(a.max_sge));
	req_out(r, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &srq->srqn, sizeof(srq->srqn));
	return req_out(r, UVERBS_ATTR_UHW_OUT, &drv_resp, sizeof(drv_resp));
}

static void drop_users(struct emu_ctx *ctx, struct emu_srq *srq)
{
	int pd = handle_find(ctx, UVERBS_OBJECT_PD, srq->pd);
	int x = srq->xrcd < 0 ? -1 : handle_find(ctx, UVERBS_OBJECT_XRCD, srq->xrcd);

	if (pd >= 0)
		atomic_fetch_sub(&ctx->handles[pd].users, 1);
	if (x >= 0)
		atomic_fetch_sub(&ctx->handles[x].users, 1);
	if (srq->cq >= 0)
		atomic_fetch_sub(&self.seg->cq[srq->cq].users, 1);
}

int srq_destroy(struct emu_ctx *ctx, uint64_t handle, uint32_t *events)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_SRQ, handle);
	struct emu_srq *srq;
	uint32_t slot;

	if (!h)
		return EINVAL;
	slot = h->slot;
	srq = &self.seg->srq[slot];
	if (atomic_load(&srq->users))
		return EBUSY;
	nic_lock();
	shm_lock(&srq->lock);
	atomic_store(&srq->h.used, 1);
	shm_unlock(&srq->lock);
	nic_disown(self.srqs, &self.nsrqs, slot);
	if (ctx->async)
		queue_purge(ctx->async, SRC_SRQ_ASYNC, slot);
	*events = srq->async_read;
	nic_unlock();
	drop_users(ctx, srq);
	atomic_store(&srq->h.used, 0);
	handle_free(ctx, handle);
	return 0;
}

int srq_modify(struct emu_req *r)
{
	struct ib_uverbs_modify_srq cmd;
	struct emu_handle *h;
	struct emu_srq *srq;

	req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd));
	h = handle_get(r->ctx, UVERBS_OBJECT_SRQ, cmd.srq_handle);
	if (!h || cmd.attr_mask & IBV_SRQ_MAX_WR)
		return EINVAL;
	srq = &self.seg->srq[h->slot];
	if (cmd.attr_mask & IBV_SRQ_LIMIT) {
		if (cmd.srq_limit >= srq->nwqe)
			return EINVAL;
		shm_lock(&srq->lock);
		srq->limit = cmd.srq_limit;
		shm_unlock(&srq->lock);
	}
	return 0;
}

int srq_query(struct emu_req *r)
{
	struct ib_uverbs_query_srq cmd;
	struct ib_uverbs_query_srq_resp resp = {0};
	struct emu_handle *h;
	struct emu_srq *srq;

	req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd));
	h = handle_get(r->ctx, UVERBS_OBJECT_SRQ, cmd.srq_handle);
	if (!h)
		return EINVAL;
	srq = &self.seg->srq[h->slot];
	resp.max_wr = srq->nwqe - 1;
	resp.max_sge = srq->max_sge;
	resp.srq_limit = srq->limit;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

/* The limit event fires once, when fewer than `limit` receives are left. */
static void check_limit(struct emu_srq *srq)
{
	uint16_t left = srq->pi - srq->ci;

	if (!srq->limit || left >= srq->limit)
		return;
	srq->limit = 0;
	atomic_fetch_or(&srq->events, 1u << IBV_EVENT_SRQ_LIMIT_REACHED);
	shm_wake(srq->h.proc);
}

static bool posts_left(struct emu_srq *srq)
{
	uint32_t db;

	if (srq->pi != srq->ci)
		return true;
	if (mem_record(srq->h.proc, srq->dbrec, &db))
		return false;
	srq->pi = db;
	return srq->pi != srq->ci;
}

bool srq_take(struct emu_srq *srq, struct emu_rx *rx)
{
	struct {
		struct mlx5_wqe_srq_next_seg next;
		struct mlx5_wqe_data_seg sge[31];
	} w;
	uint32_t n, db;

	if (!posts_left(srq))
		return false;
	if (srq->limit && !mem_record(srq->h.proc, srq->dbrec, &db))
		srq->pi = db;
	if (mem_read(srq->h.proc, srq->buf + (uint64_t)srq->head * srq->stride, &w,
		     srq->stride < sizeof(w) ? srq->stride : sizeof(w)))
		return false;
	for (n = 0; n < 31 && 16 + 16 * n < srq->stride; n++) {
		if (be32toh(w.sge[n].lkey) == MLX5_INVALID_LKEY)
			break;
		rx->sge[n] = w.sge[n];
	}
	rx->nsge = n;
	rx->wqe_index = srq->head;
	rx->from_srq = 1;
	srq->head = be16toh(w.next.next_wqe_index) & (srq->nwqe - 1);
	srq->ci++;
	check_limit(srq);
	return true;
}
