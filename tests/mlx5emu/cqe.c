/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing completion entries, in struct mlx5_cqe64 / mlx5_err_cqe of infiniband/mlx5dv.h.
 *
 * The byte with opcode and owner bit is written last: it makes the entry valid. The owner bit
 * flips on every turn of the ring. In a 128-byte entry the last 64 bytes count.
 */
#include "emu.h"

#include <stdio.h>

static void encode(struct mlx5_cqe64 *c, const struct emu_cqe *e)
{
	memset(c, 0, sizeof(*c));
	c->srqn_uidx = htobe32(e->uidx);
	c->sop_drop_qpn = htobe32((uint32_t)e->wqe_opcode << 24 | e->qpn);
	c->wqe_counter = htobe16(e->wqe_counter);
	if (e->opcode == MLX5_CQE_REQ_ERR || e->opcode == MLX5_CQE_RESP_ERR) {
		((struct mlx5_err_cqe *)c)->syndrome = e->syndrome;
		((struct mlx5_err_cqe *)c)->vendor_err_synd = e->vendor;
		return;
	}
	c->byte_cnt = htobe32(e->byte_cnt);
	c->imm_inval_pkey = e->imm;
	c->timestamp = htobe64(now_ns());
	c->slid = htobe16(e->slid);
	/* bits 28-29: a GRH is there, 24-27: service level, below: source QP */
	c->flags_rqpn = htobe32((e->grh ? 1u << 28 : 0) | (uint32_t)(e->sl & 0xf) << 24 |
				(e->src_qp & 0xffffff));
}

/*
 * libmlx5 steps over a RESIZE entry without telling the consumer record (mlx5/cq.c): such entries
 * are not counted until the record moves on.
 */
static bool ring_full(struct emu_cq *cq)
{
	uint32_t ci;

	if (((cq->pi - cq->ci_cache) & 0xffffff) < cq->ncqe)
		return false;
	if (mem_record(cq->h.proc, cq->dbrec, &ci))
		return true;
	ci &= 0xffffff;
	if (ci != cq->ci_cache)
		cq->resizes = 0;
	cq->ci_cache = ci;
	return ((cq->pi - ci - cq->resizes) & 0xffffff) >= cq->ncqe;
}

static void store(struct emu_cq *cq, struct mlx5_cqe64 *c)
{
	uint64_t at =
		cq->buf + (uint64_t)(cq->pi & (cq->ncqe - 1)) * cq->cqe_size + (cq->cqe_size - 64);
	struct iovec to[2] = {{(void *)(uintptr_t)at, 63}, {(void *)(uintptr_t)(at + 63), 1}};
	struct iovec from[2] = {{c, 63}, {&c->op_own, 1}};

	if ((int)cq->h.proc == self.proc) {
		memcpy(to[0].iov_base, c, 63);
		atomic_thread_fence(memory_order_release);
		*(volatile uint8_t *)to[1].iov_base = c->op_own;
		return;
	}
	if (mem_push(cq->h.proc, to, 2, from, 2))
		emu_log("cq %#x: cannot write to process slot %u", cq->pi, cq->h.proc);
}

static void overrun(struct emu_cq *cq)
{
	uint32_t i, slot = cq - self.seg->cq;

	/* Nobody who is well does that: also said without MLX5EMU_VERBOSE. */
	fprintf(stderr, "mlx5emu: CQ %u overrun at %#x\n", slot, cq->pi);
	cq->error = 1;
	atomic_fetch_or(&cq->events, 1u << IBV_EVENT_CQ_ERR);
	for (i = 0; i < EMU_QPS; i++) {
		struct emu_qp *qp = &self.seg->qp[i];

		if (atomic_load(&qp->h.used) == 2 && (qp->scq == (int)slot || qp->rcq == (int)slot))
			qp_set_error(qp, IBV_EVENT_QP_FATAL);
	}
}

void cqe_write(struct emu_cq *cq, const struct emu_cqe *e)
{
	bool notable = e->solicited || e->opcode >= MLX5_CQE_REQ_ERR;
	struct mlx5_cqe64 c;

	encode(&c, e);
	shm_lock(&cq->lock);
	if (atomic_load(&cq->h.used) != 2 || cq->error) {
		shm_unlock(&cq->lock);
		return;
	}
	if (e->opcode == MLX5_CQE_RESIZE_CQ)
		cq->resizes++;
	else if (!(cq->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) && ring_full(cq)) {
		overrun(cq);
		shm_unlock(&cq->lock);
		shm_wake(cq->h.proc);
		return;
	}
	c.op_own =
		(uint8_t)(e->opcode << 4) | (e->solicited ? 2 : 0) | ((cq->pi & cq->ncqe) ? 1 : 0);
	store(cq, &c);
	cq->pi = (cq->pi + 1) & 0xffffff;
	if (notable)
		cq->sol_pi = cq->pi;
	shm_unlock(&cq->lock);
	if (cq->has_channel)
		shm_wake(cq->h.proc);
}
