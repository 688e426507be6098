/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues and channels: life, resize, and completion events. cqe.c writes the entries.
 */
#include <stdlib.h>

#include "emu.h"

int channel_create(struct emu_req *r)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	struct emu_queue *q = queue_new();

	if (!q)
		return EMFILE;
	resp.fd = queue_fd(q);
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static struct emu_cq *slot_take(void)
{
	struct emu_seg *s = self.seg;
	struct emu_cq *cq = NULL;
	uint32_t i, n;

	shm_lock(&s->lock);
	for (n = 0, i = s->cq_hint; n < EMU_CQS; n++, i = (i + 1) % EMU_CQS)
		if (!atomic_load(&s->cq[i].h.used))
			break;
	if (n < EMU_CQS) {
		cq = &s->cq[i];
		s->cq_hint = (i + 1) % EMU_CQS;
		memset(cq, 0, sizeof(*cq));
		shm_mutex_init(&cq->lock);
		cq->h.proc = self.proc;
		atomic_store(&cq->h.used, 1);
	}
	shm_unlock(&s->lock);
	return cq;
}

static int check_args(struct emu_req *r, const struct mlx5_ib_create_cq *drv, uint32_t entries)
{
	if (!entries || entries > (1u << 22) || (entries & (entries - 1)))
		return EINVAL;
	if (drv->cqe_size != 64 && drv->cqe_size != 128)
		return EINVAL;
	if (!drv->buf_addr || !drv->db_addr || drv->cqe_comp_en)
		return EINVAL;
	if (!mem_exists(drv->buf_addr) || !mem_exists(drv->db_addr))
		return EFAULT;
	return req_u64(r, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0) >= 4 ? EINVAL : 0;
}

static void fill(struct emu_req *r, struct emu_cq *cq, const struct mlx5_ib_create_cq *drv,
		 uint32_t entries)
{
	struct ib_uverbs_attr *ch = req_attr(r, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
	uint32_t never = UINT32_MAX;

	cq->h.ctx = r->ctx->num;
	cq->h.dev = r->ctx->dev;
	cq->h.user_handle = req_u64(r, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0);
	cq->buf = drv->buf_addr;
	cq->dbrec = drv->db_addr;
	cq->ncqe = entries;
	cq->cqe_size = drv->cqe_size;
	cq->flags = req_u64(r, UVERBS_ATTR_CREATE_CQ_FLAGS, 0);
	cq->arm_word = never;
	cq->notified_pi = never;
	if (ch)
		cq->channel = (uintptr_t)fd_get(ch->data_s64, FD_QUEUE);
	cq->has_channel = cq->channel != 0;
	/*
	 * libmlx5 arms a fresh CQ by writing 0 over a 0: indistinguishable from "never armed".
	 * It does not read the word, so mark it here.
	 */
	mem_write(self.proc, cq->dbrec + 4, &never, sizeof(never));
}

int cq_create(struct emu_req *r)
{
	uint32_t cqe = req_u64(r, UVERBS_ATTR_CREATE_CQ_CQE, 0);
	struct ib_uverbs_attr *ch = req_attr(r, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
	struct mlx5_ib_create_cq_resp drv_resp = {0};
	struct mlx5_ib_create_cq drv;
	struct emu_cq *cq;
	int h, err;

	if (req_in(r, UVERBS_ATTR_UHW_IN, &drv, sizeof(drv)))
		return EINVAL;
	err = check_args(r, &drv, cqe + 1);
	if (!err && ch && !fd_get(ch->data_s64, FD_QUEUE))
		err = EBADF;
	if (err)
		return err;
	cq = slot_take();
	if (!cq)
		return ENOMEM;
	h = handle_new(r->ctx, UVERBS_OBJECT_CQ, cq - self.seg->cq);
	if (h < 0) {
		atomic_store(&cq->h.used, 0);
		return ENOMEM;
	}
	fill(r, cq, &drv, cqe + 1);
	handle_get(r->ctx, UVERBS_OBJECT_CQ, h)->aux = (uintptr_t)r->ctx->async;
	nic_lock();
	atomic_store(&cq->h.used, 2);
	nic_own(&self.cqs, &self.ncqs, cq - self.seg->cq);
	nic_unlock();
	drv_resp.cqn = (cq - self.seg->cq) + CQN_BASE;
	req_out_handle(r, UVERBS_ATTR_CREATE_CQ_HANDLE, h);
	req_out(r, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, sizeof(cqe));
	return req_out(r, UVERBS_ATTR_UHW_OUT, &drv_resp, sizeof(drv_resp));
}

int cq_destroy(struct emu_ctx *ctx, uint64_t handle, struct ib_uverbs_destroy_cq_resp *resp)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_CQ, handle);
	struct emu_cq *cq;
	uint32_t slot;

	if (!h)
		return EINVAL;
	slot = h->slot;
	cq = &self.seg->cq[slot];
	if (atomic_load(&cq->users))
		return EBUSY;
	nic_lock();
	shm_lock(&cq->lock);
	atomic_store(&cq->h.used, 1);
	shm_unlock(&cq->lock);
	nic_disown(self.cqs, &self.ncqs, slot);
	if (cq->channel)
		queue_purge((struct emu_queue *)(uintptr_t)cq->channel, SRC_CQ_COMP, slot);
	if (ctx->async)
		queue_purge(ctx->async, SRC_CQ_ASYNC, slot);
	resp->comp_events_reported = cq->comp_read;
	resp->async_events_reported = cq->async_read;
	atomic_store(&cq->h.used, 0);
	nic_unlock();
	handle_free(ctx, handle);
	return 0;
}

/*
 * The hardware puts a RESIZE entry into the old ring and goes on in the new one; libmlx5 copies
 * what lies before it (mlx5/cq.c, the resize copy). Indices go on counting over both.
 */
static int resize(struct emu_cq *cq, uint64_t buf, uint32_t entries)
{
	struct emu_cqe e = {.opcode = MLX5_CQE_RESIZE_CQ};
	uint32_t ci;

	if (mem_record(cq->h.proc, cq->dbrec, &ci))
		return EFAULT;
	ci &= 0xffffff;
	if (((cq->pi - ci) & 0xffffff) >= entries)
		return EINVAL;
	cqe_write(cq, &e);
	shm_lock(&cq->lock);
	cq->buf = buf;
	cq->ncqe = entries;
	shm_unlock(&cq->lock);
	return 0;
}

int cq_resize(struct emu_req *r)
{
	struct ib_uverbs_resize_cq cmd;
	struct ib_uverbs_resize_cq_resp resp = {0};
	struct mlx5_ib_resize_cq drv;
	struct emu_handle *h;
	uint32_t n;
	int err;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)) ||
	    req_in(r, UVERBS_ATTR_UHW_IN, &drv, sizeof(drv)))
		return EINVAL;
	h = handle_get(r->ctx, UVERBS_OBJECT_CQ, cmd.cq_handle);
	n = cmd.cqe + 1;
	if (!h || !n || (n & (n - 1)) || n > (1u << 22) || !mem_exists(drv.buf_addr))
		return EINVAL;
	nic_lock();
	err = resize(&self.seg->cq[h->slot], drv.buf_addr, n);
	nic_unlock();
	resp.cqe = cmd.cqe;
	return err ? err : req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static void fire(struct emu_cq *cq)
{
	struct ib_uverbs_comp_event_desc ev = {.cq_handle = cq->h.user_handle};

	cq->notified_pi = cq->pi;
	cq->arm_sn = (cq->arm_sn + 1) & 3;
	cq->arm_valid = 0;
	queue_put((struct emu_queue *)(uintptr_t)cq->channel, &ev, sizeof(ev), SRC_CQ_COMP,
		  cq - self.seg->cq);
}

/*
 * The arm word: sn << 28 | solicited-only << 24 | consumer index. One event per sequence number,
 * if there are entries past the consumer index that no earlier event was for ("last notified
 * index" of the CQ context, Adapters Programmer's Reference Manual).
 */
void cq_doorbell(struct emu_cq *cq, uint32_t word)
{
	if (word == UINT32_MAX || (word >> 28 & 3) != cq->arm_sn)
		return;
	cq->arm_word = word;
	cq->arm_valid = 1;
}

void cq_check_arm(struct emu_cq *cq)
{
	uint32_t word, ci, pi;

	if (!cq->has_channel)
		return;
	if (self.seg->cfg.mode == EMU_THREAD) {
		word = be32toh(*(volatile uint32_t *)(uintptr_t)(cq->dbrec + 4));
		if (word != cq->arm_word || !cq->arm_valid)
			cq_doorbell(cq, word);
	}
	if (!cq->arm_valid)
		return;
	ci = cq->arm_word & 0xffffff;
	pi = cq->arm_word & (1u << 24) ? cq->sol_pi : cq->pi;
	if (pi == cq->notified_pi || !((pi - ci) & 0xffffff) || ((pi - ci) & 0x800000))
		return;
	fire(cq);
}
