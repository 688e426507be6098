/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions and windows: registration, key checks, binding. Copying is in mem.c.
 *
 * A key is index << 8 | variant. Index 1 is left out: 0x100 marks the end of a receive list
 * (MLX5_INVALID_LKEY). Any process may look a key up; `inflight` keeps the region until the
 * access is over, and deregistration waits for that, as the hardware does.
 */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

#include "emu.h"

#define KEY_BASE 0x10u

/* Waiting for a peer's access to end is bounded: the peer may have been killed inside it. */
#define DRAIN_NS 200000000ull

static struct emu_mr *slot_take(void)
{
	struct emu_seg *s = self.seg;
	struct emu_mr *mr = NULL;
	uint32_t i, n;

	shm_lock(&s->lock);
	for (n = 0, i = s->mr_hint; n < EMU_MRS; n++, i = (i + 1) % EMU_MRS)
		if (!atomic_load(&s->mr[i].h.used))
			break;
	if (n < EMU_MRS) {
		mr = &s->mr[i];
		s->mr_hint = (i + 1) % EMU_MRS;
		mr->key = ((i + KEY_BASE) << 8) | ((mr->key + 1) & 0xff);
		mr->h.proc = self.proc;
		atomic_store(&mr->h.used, 1);
	}
	shm_unlock(&s->lock);
	return mr;
}

static struct emu_mr *mr_new(struct emu_req *r, uint16_t type, uint32_t pd_handle, int *handle,
			     int *err)
{
	struct emu_handle *pd = handle_get(r->ctx, UVERBS_OBJECT_PD, pd_handle);
	struct emu_mr *mr;

	*err = EINVAL;
	if (!pd)
		return NULL;
	*err = ENOMEM;
	mr = slot_take();
	if (!mr)
		return NULL;
	*handle = handle_new(r->ctx, type, mr - self.seg->mr);
	if (*handle < 0) {
		atomic_store(&mr->h.used, 0);
		return NULL;
	}
	handle_get(r->ctx, type, *handle)->aux = pd_handle;
	atomic_fetch_add(&pd->users, 1);
	mr->h.ctx = r->ctx->num;
	mr->h.dev = r->ctx->dev;
	mr->pd = pd->slot;
	mr->mw_type = mr->mw_bound = mr->mw_qpn = mr->mw_parent = 0;
	atomic_store(&mr->nr_windows, 0);
	atomic_store(&mr->inflight, 0);
	*err = 0;
	return mr;
}

static bool bad_access(uint32_t access)
{
	return (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	       !(access & IBV_ACCESS_LOCAL_WRITE);
}

/* The kernel pins the pages; here it is enough that they can be read once. */
static bool range_exists(uint64_t start, uint64_t len)
{
	if (!len)
		return true;
	return start + len > start && mem_exists(start) && mem_exists(start + len - 1);
}

int mr_reg(struct emu_req *r)
{
	struct ib_uverbs_reg_mr cmd;
	struct ib_uverbs_reg_mr_resp resp = {0};
	struct emu_mr *mr;
	int h, err;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)))
		return EINVAL;
	if (bad_access(cmd.access_flags) || (cmd.start & 0xfff) != (cmd.hca_va & 0xfff))
		return EINVAL;
	if (cmd.access_flags & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	if (!range_exists(cmd.start, cmd.length))
		return EFAULT;
	mr = mr_new(r, UVERBS_OBJECT_MR, cmd.pd_handle, &h, &err);
	if (!mr)
		return err;
	mr->access = cmd.access_flags;
	mr->start = cmd.start;
	mr->iova = cmd.access_flags & IBV_ACCESS_ZERO_BASED ? 0 : cmd.hca_va;
	mr->length = cmd.length;
	atomic_store(&mr->h.used, 2);
	resp.mr_handle = h;
	resp.lkey = resp.rkey = mr->key;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static void drain(struct emu_mr *mr)
{
	uint64_t until = now_ns() + DRAIN_NS;

	while (atomic_load(&mr->inflight) && now_ns() < until)
		sched_yield();
}

static void change_pd(struct emu_req *r, struct emu_handle *h, struct emu_mr *mr,
		      struct emu_handle *pd, uint32_t pd_handle)
{
	struct emu_handle *old = handle_get(r->ctx, UVERBS_OBJECT_PD, h->aux);

	if (old)
		atomic_fetch_sub(&old->users, 1);
	atomic_fetch_add(&pd->users, 1);
	h->aux = pd_handle;
	mr->pd = pd->slot;
}

int mr_rereg(struct emu_req *r)
{
	struct ib_uverbs_rereg_mr cmd;
	struct ib_uverbs_rereg_mr_resp resp = {0};
	struct emu_handle *h, *pd = NULL;
	struct emu_mr *mr;

	req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd));
	h = handle_get(r->ctx, UVERBS_OBJECT_MR, cmd.mr_handle);
	if (!h || !cmd.flags || cmd.flags & ~(uint32_t)IBV_REREG_MR_FLAGS_SUPPORTED)
		return EINVAL;
	if (cmd.flags & IBV_REREG_MR_CHANGE_PD) {
		pd = handle_get(r->ctx, UVERBS_OBJECT_PD, cmd.pd_handle);
		if (!pd)
			return EINVAL;
	}
	if ((cmd.flags & IBV_REREG_MR_CHANGE_ACCESS) && bad_access(cmd.access_flags))
		return EINVAL;
	if ((cmd.flags & IBV_REREG_MR_CHANGE_TRANSLATION) && !range_exists(cmd.start, cmd.length))
		return EFAULT;
	mr = &self.seg->mr[h->slot];
	if (atomic_load(&mr->nr_windows))
		return EBUSY;
	nic_lock();
	atomic_store(&mr->h.used, 1);
	drain(mr);
	if (pd)
		change_pd(r, h, mr, pd, cmd.pd_handle);
	if (cmd.flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = cmd.access_flags;
	if (cmd.flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->start = cmd.start;
		mr->iova = cmd.hca_va;
		mr->length = cmd.length;
	}
	atomic_store(&mr->h.used, 2);
	nic_unlock();
	resp.lkey = resp.rkey = mr->key;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

int mr_query(struct emu_req *r)
{
	struct emu_handle *h = handle_get(r->ctx, UVERBS_OBJECT_MR,
					  req_u64(r, UVERBS_ATTR_QUERY_MR_HANDLE, UINT64_MAX));
	struct emu_mr *mr;

	if (!h)
		return EINVAL;
	mr = &self.seg->mr[h->slot];
	req_out(r, UVERBS_ATTR_QUERY_MR_RESP_LKEY, &mr->key, sizeof(mr->key));
	req_out(r, UVERBS_ATTR_QUERY_MR_RESP_RKEY, &mr->key, sizeof(mr->key));
	req_out(r, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &mr->length, sizeof(mr->length));
	return req_out(r, UVERBS_ATTR_QUERY_MR_RESP_IOVA, &mr->iova, sizeof(mr->iova));
}

static void slot_drop(struct emu_ctx *ctx, struct emu_handle *h, uint64_t handle)
{
	struct emu_mr *mr = &self.seg->mr[h->slot];
	struct emu_handle *pd = handle_get(ctx, UVERBS_OBJECT_PD, h->aux);

	nic_lock();
	atomic_store(&mr->h.used, 1);
	drain(mr);
	atomic_store(&mr->h.used, 0);
	nic_unlock();
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	handle_free(ctx, handle);
}

int mr_dereg(struct emu_ctx *ctx, uint64_t handle)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_MR, handle);

	if (!h)
		return EINVAL;
	if (atomic_load(&self.seg->mr[h->slot].nr_windows))
		return EBUSY;
	slot_drop(ctx, h, handle);
	return 0;
}

int mw_alloc(struct emu_req *r)
{
	struct ib_uverbs_alloc_mw cmd;
	struct ib_uverbs_alloc_mw_resp resp = {0};
	struct emu_mr *mw;
	int h, err;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)))
		return EINVAL;
	if (cmd.mw_type != IBV_MW_TYPE_1 && cmd.mw_type != IBV_MW_TYPE_2)
		return EINVAL;
	mw = mr_new(r, UVERBS_OBJECT_MW, cmd.pd_handle, &h, &err);
	if (!mw)
		return err;
	mw->mw_type = cmd.mw_type;
	atomic_store(&mw->h.used, 2);
	resp.mw_handle = h;
	resp.rkey = mw->key;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static void unbind(struct emu_mr *mw)
{
	if (mw->mw_bound)
		atomic_fetch_sub(&self.seg->mr[mw->mw_parent].nr_windows, 1);
	mw->mw_bound = 0;
}

int mw_dealloc(struct emu_ctx *ctx, uint64_t handle)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_MW, handle);

	if (!h)
		return EINVAL;
	unbind(&self.seg->mr[h->slot]);
	slot_drop(ctx, h, handle);
	return 0;
}

static struct emu_mr *slot_of(uint32_t key)
{
	uint32_t i = (key >> 8) - KEY_BASE;

	return i < EMU_MRS ? &self.seg->mr[i] : NULL;
}

static bool allows(const struct emu_mr *mr, uint32_t qpn, uint64_t va, uint64_t len,
		   uint32_t access)
{
	if ((mr->access & access) != access)
		return false;
	if (mr->mw_type && (!mr->mw_bound || (mr->mw_type == IBV_MW_TYPE_2 && mr->mw_qpn != qpn)))
		return false;
	return va >= mr->iova && len <= mr->length && va - mr->iova <= mr->length - len;
}

struct emu_mr *mr_get(uint32_t key, uint32_t proc, uint32_t pd, uint32_t qpn, uint64_t va,
		      uint64_t len, uint32_t access, bool remote, uint64_t *addr)
{
	struct emu_mr *mr = slot_of(key);

	if (!mr)
		return NULL;
	atomic_fetch_add(&mr->inflight, 1);
	if (atomic_load(&mr->h.used) != 2 || mr->key != key || mr->h.proc != proc || mr->pd != pd ||
	    (mr->mw_type && !remote) || !allows(mr, qpn, va, len, access)) {
		mr_put(mr);
		return NULL;
	}
	*addr = mr->start + (va - mr->iova);
	return mr;
}

void mr_put(struct emu_mr *mr)
{
	atomic_fetch_sub(&mr->inflight, 1);
}

/* Access bits of a UMR memory-key segment, to verbs flags. */
static uint32_t umr_access(uint8_t a)
{
	uint32_t access = 0;

	if (a & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (a & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (a & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	return access;
}

static bool window_covers(const struct emu_mr *parent, uint64_t addr, uint64_t len, uint32_t access)
{
	if (!(parent->access & IBV_ACCESS_MW_BIND))
		return false;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(parent->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return addr >= parent->iova && len <= parent->length &&
	       addr - parent->iova <= parent->length - len;
}

/*
 * A UMR that binds or frees a window: control segment, UMR control (48 bytes), memory key
 * (64 bytes), and one KLM entry if it binds (infiniband/mlx5dv.h). 0 or a CQE syndrome.
 */
int mw_bind(struct emu_qp *qp, const uint8_t *w, uint32_t ds)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = (const void *)w;
	const struct mlx5_wqe_umr_ctrl_seg *umr = (const void *)(w + 16);
	const struct mlx5_wqe_mkey_context_seg *mk = (const void *)(w + 64);
	const struct mlx5_wqe_umr_klm_seg *klm = (const void *)(w + 128);
	uint32_t key = be32toh(ctrl->imm), access = umr_access(mk->access_flags);
	uint32_t qpn = be32toh(mk->qpn_mkey) >> 8;
	struct emu_mr *mw = slot_of(key), *parent;
	uint64_t len = be64toh(mk->len);

	if (!mw || atomic_load(&mw->h.used) != 2 || mw->h.proc != qp->h.proc || mw->pd != qp->pd)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	if (mk->free & MLX5_WQE_MKEY_CONTEXT_FREE || ds < 12)
		return mw_invalidate(key, qp->h.proc, qp->pd, qp->qpn)
			       ? MLX5_CQE_SYNDROME_MW_BIND_ERR
			       : 0;
	parent = slot_of(be32toh(klm->mkey));
	if (!mw->mw_type || mw->key != key || !parent || parent->mw_type ||
	    atomic_load(&parent->h.used) != 2 || parent->key != be32toh(klm->mkey) ||
	    parent->pd != mw->pd || !window_covers(parent, be64toh(klm->address), len, access))
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	if ((umr->flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE) && mw->mw_bound)
		return MLX5_CQE_SYNDROME_MW_BIND_ERR;
	unbind(mw);
	atomic_fetch_add(&parent->nr_windows, 1);
	mw->mw_parent = parent - self.seg->mr;
	mw->mw_qpn = qpn;
	mw->access = access;
	mw->iova = be64toh(mk->start_addr);
	mw->length = len;
	mw->start = parent->start + (be64toh(klm->address) - parent->iova);
	mw->key = (key & ~0xffu) | (be32toh(mk->qpn_mkey) & 0xff);
	mw->mw_bound = 1;
	return 0;
}

/* Local or remote invalidation: only bound type 2 windows of this QP can be. */
int mw_invalidate(uint32_t key, uint32_t proc, uint32_t pd, uint32_t qpn)
{
	struct emu_mr *mw = slot_of(key);

	if (!mw || atomic_load(&mw->h.used) != 2 || mw->key != key || mw->h.proc != proc ||
	    mw->pd != pd)
		return EINVAL;
	if (mw->mw_type == IBV_MW_TYPE_1 && mw->mw_bound) {
		unbind(mw); /* a zero-length type 1 bind */
		return 0;
	}
	if (mw->mw_type != IBV_MW_TYPE_2 || !mw->mw_bound || mw->mw_qpn != qpn)
		return EINVAL;
	unbind(mw);
	return 0;
}
