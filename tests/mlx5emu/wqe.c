/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading a send WQE out of the program's ring: segments as in infiniband/mlx5dv.h.
 *
 * The ring is made of 64-byte units; a WQE is ds segments of 16 bytes and wraps at the end, inline
 * data included, so it is first copied to a straight buffer. The control segment repeats index and
 * QP number: both are checked, which catches a wrong doorbell or a torn WQE at once.
 */
#include "emu.h"

static void copy_raw(const struct emu_qp *qp, uint16_t index, uint8_t *raw, uint32_t bytes)
{
	const uint8_t *ring =
		(const uint8_t *)(uintptr_t)qp->buf + ((uint64_t)qp->rq_cnt << qp->rq_shift);
	uint32_t at = (index & (qp->sq_cnt - 1)) * 64, size = qp->sq_cnt * 64;
	uint32_t n = bytes < size - at ? bytes : size - at;

	memcpy(raw, ring + at, n);
	if (n < bytes)
		memcpy(raw + n, ring, bytes - n);
}

static const uint8_t *take_remote(struct emu_wqe *w, const uint8_t *p)
{
	const struct mlx5_wqe_raddr_seg *seg = (const void *)p;

	w->raddr = be64toh(seg->raddr);
	w->rkey = be32toh(seg->rkey);
	return p + sizeof(*seg);
}

static const uint8_t *take_atomic(struct emu_wqe *w, const uint8_t *p)
{
	const struct mlx5_wqe_atomic_seg *seg = (const void *)p;

	w->swap_add = be64toh(seg->swap_add);
	w->compare = be64toh(seg->compare);
	return p + sizeof(*seg);
}

static const uint8_t *take_datagram(struct emu_wqe *w, const uint8_t *p)
{
	const struct mlx5_wqe_av *av = (const void *)p;

	w->qkey = be32toh(av->key.qkey.qkey);
	w->dqpn = be32toh(av->dqp_dct) & 0xffffff;
	w->rlid = be16toh(av->rlid);
	w->sl = av->stat_rate_sl & 0xf;
	w->grh_gid_fl = be32toh(av->grh_gid_fl);
	memcpy(w->rgid, av->rgid, 16);
	return p + sizeof(*av);
}

static const uint8_t *take_headers(const struct emu_qp *qp, struct emu_wqe *w, const uint8_t *p)
{
	if (qp->type == IBV_QPT_UD)
		return take_datagram(w, p);
	if (qp->type == IBV_QPT_XRC_SEND) {
		w->xrc_srqn = be32toh(*(const uint32_t *)p);
		p += 16;
	}
	switch (w->opcode) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
	case MLX5_OPCODE_RDMA_READ:
		return take_remote(w, p);
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		return take_atomic(w, take_remote(w, p));
	default:
		return p;
	}
}

static int take_data(struct emu_wqe *w, const uint8_t *p, const uint8_t *end)
{
	const struct mlx5_wqe_data_seg *d;
	uint32_t count;

	w->nsge = 0;
	w->len = 0;
	w->is_inline = false;
	while (p < end && w->nsge < 64) {
		count = be32toh(*(const uint32_t *)p);
		if (count & MLX5_INLINE_SEG) {
			count &= ~(uint32_t)MLX5_INLINE_SEG;
			if (count > (size_t)(end - p - 4) || w->nsge)
				return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
			w->is_inline = true;
			w->sge[0].addr = (uintptr_t)(p + 4);
			w->sge[0].len = count;
			w->nsge = 1;
			w->len = count;
			return 0;
		}
		d = (const void *)p;
		/* A count of zero means 2 GiB to the hardware; libmlx5 leaves such entries out. */
		w->sge[w->nsge].addr = be64toh(d->addr);
		w->sge[w->nsge].len = count;
		w->sge[w->nsge++].lkey = be32toh(d->lkey);
		w->len += count;
		p += sizeof(*d);
	}
	return 0;
}

/* 0, or the CQE syndrome for a WQE that makes no sense. */
int wqe_fetch(struct emu_qp *qp, uint16_t index, struct emu_wqe *w)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = (const void *)w->raw;
	const uint8_t *p = w->raw + sizeof(*ctrl);
	uint32_t op;

	copy_raw(qp, index, w->raw, 64);
	op = be32toh(ctrl->opmod_idx_opcode);
	w->ds = be32toh(ctrl->qpn_ds) & 0x3f;
	w->opcode = op & 0xff;
	w->fm_ce_se = ctrl->fm_ce_se;
	w->imm = ctrl->imm;
	w->index = index;
	w->nsge = 0;
	w->len = 0;
	w->sl = qp->attr.dest.sl;
	if (!w->ds || (uint16_t)(op >> 8) != index || be32toh(ctrl->qpn_ds) >> 8 != qp->qpn) {
		emu_log("qp %#x: WQE %u says index %u, qp %#x, ds %u", qp->qpn, index,
			op >> 8 & 0xffff, be32toh(ctrl->qpn_ds) >> 8, w->ds);
		w->ds = w->ds ? w->ds : 1;
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	}
	if (w->ds > 4)
		copy_raw(qp, index, w->raw, w->ds * 16);
	if (w->opcode == MLX5_OPCODE_UMR || w->opcode == MLX5_OPCODE_NOP)
		return 0;
	p = take_headers(qp, w, p);
	return take_data(w, p, w->raw + w->ds * 16);
}

bool wqe_signaled(const struct emu_qp *qp, const struct emu_wqe *w)
{
	return qp->sig_all || (w->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE);
}
