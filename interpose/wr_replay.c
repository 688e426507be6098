/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recorded WRs go to the NIC through the functions that the provider put into the QP.
 *
 * Those read wr_id and wr_flags of the program's struct ibv_qp_ex, and the queue moves in whatever
 * thread posts, polls or makes progress. So the two fields are borrowed: exchanged for ours, and
 * given back by compare-and-exchange. If the program stored to them meanwhile, its value stays, the
 * provider's batch is aborted (a builder may have read the wrong value) and made once more. While
 * the program is in its critical region the pump keeps out altogether (wr_in_region() in wr.c), so
 * that it may also read the fields there, as in wr_id++.
 */
#include "interpose/wr.h"

struct loan {
	uint64_t id, lent_id;
	unsigned int flags, lent_flags;
};

static bool swap_id(struct ibv_qp_ex *x, struct loan *l, uint64_t id)
{
	uint64_t expected = l->lent_id;

	l->lent_id = id;
	return __atomic_compare_exchange_n(&x->wr_id, &expected, id, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

static bool swap_flags(struct ibv_qp_ex *x, struct loan *l, unsigned int flags)
{
	unsigned int expected = l->lent_flags;

	l->lent_flags = flags;
	return __atomic_compare_exchange_n(&x->wr_flags, &expected, flags, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

/* The mark tells our flags from equal ones that the program stores; see struct provider. */
static unsigned int flags_of(const struct qp *q, const struct ibv_send_wr *wr)
{
	return (wr->send_flags & ~WR_INTERNAL) | q->ctx->provider->wr_mark;
}

static void borrow(struct qp *q, const struct ibv_send_wr *wr, struct loan *l)
{
	struct ibv_qp_ex *x = q->batch->x;

	l->lent_id = wr->wr_id;
	l->lent_flags = flags_of(q, wr);
	l->id = __atomic_exchange_n(&x->wr_id, l->lent_id, __ATOMIC_SEQ_CST);
	l->flags = __atomic_exchange_n(&x->wr_flags, l->lent_flags, __ATOMIC_SEQ_CST);
}

static bool lend_again(struct qp *q, const struct ibv_send_wr *wr, struct loan *l)
{
	bool id = swap_id(q->batch->x, l, wr->wr_id);

	return swap_flags(q->batch->x, l, flags_of(q, wr)) && id;
}

static bool give_back(struct qp *q, struct loan *l)
{
	bool id = swap_id(q->batch->x, l, l->id);

	return swap_flags(q->batch->x, l, l->flags) && id;
}

static void call_builder(struct wr_batch *b, const struct ibv_send_wr *wr)
{
	const struct wr_ops *ops = &b->ops;
	struct ibv_qp_ex *x = b->x;
	uint64_t addr = wr->wr.rdma.remote_addr, data;

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ops->wr_rdma_write(x, wr->wr.rdma.rkey, addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ops->wr_rdma_write_imm(x, wr->wr.rdma.rkey, addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ops->wr_rdma_read(x, wr->wr.rdma.rkey, addr);
		break;
	case IBV_WR_SEND:
		ops->wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ops->wr_send_imm(x, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ops->wr_send_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ops->wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				       wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ops->wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					 wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_WRITE:
		data = wr->wr.atomic.swap;
		ops->wr_atomic_write(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, &data);
		break;
	case IBV_WR_LOCAL_INV:
		ops->wr_local_inv(x, wr->invalidate_rkey);
		break;
	default: /* nothing else is recorded */
		ops->wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	}
}

static void call_setters(struct wr_batch *b, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	const struct wr_ops *ops = &b->ops;

	if (!wr_takes_data(wr->opcode))
		return;
	if (!(wr->send_flags & WR_NO_ADDRESS)) {
		if (b->q->type == IBV_QPT_UD)
			ops->wr_set_ud_addr(b->x, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
					    wr->wr.ud.remote_qkey);
		else if (b->q->type == IBV_QPT_XRC_SEND)
			ops->wr_set_xrc_srqn(b->x, wr->qp_type.xrc.remote_srqn);
	}
	if (wr->send_flags & WR_NO_DATA)
		return;
	if (wr->send_flags & WR_INLINE)
		ops->wr_set_inline_data(b->x, (void *)(uintptr_t)sge->addr, sge->length);
	else if (wr->num_sge == 1)
		ops->wr_set_sge(b->x, sge->lkey, sge->addr, sge->length);
	else
		ops->wr_set_sge_list(b->x, (size_t)wr->num_sge, sge);
}

/* Calls everything for the list. False: the program stored to the fields, it must be done again. */
static bool build_all(struct qp *q, const struct ibv_send_wr *wr)
{
	struct loan loan;

	borrow(q, wr, &loan);
	do {
		call_builder(q->batch, wr);
		call_setters(q->batch, wr);
		wr = wr->next;
	} while (wr && lend_again(q, wr, &loan));
	return give_back(q, &loan) && !wr;
}

int wr_replay(struct qp *q, const struct ibv_send_wr *wr)
{
	struct wr_batch *b = q->batch;

	for (;;) {
		b->ops.wr_start(b->x);
		if (!wr || build_all(q, wr))
			return b->ops.wr_complete(b->x);
		b->ops.wr_abort(b->x);
	}
}

int wr_post_chain(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	*bad = wr;
	return wr_replay(q, wr);
}
