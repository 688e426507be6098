/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity_gen.h"

#include <stdlib.h>
#include <string.h>

/* ---- receives ---- */

static struct slot *free_slot(struct side *s)
{
	while (s->slot[s->next_slot].busy)
		s->next_slot = (s->next_slot + 1) % s->nslot;
	return &s->slot[s->next_slot];
}

static uint32_t recv_capacity(struct world *w, const struct op *op, bool srq)
{
	uint32_t grh = w->plan.type == IBV_QPT_UD ? UD_GRH : 0;
	uint32_t need = op->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : op->len;
	bool exact = vu_chance(&w->rng, 40);
	uint64_t more = vu_below(&w->rng, w->plan.recv_len - need + 1);

	if (srq)
		return w->plan.recv_len + grh; /* any message may take it */
	return need + grh + (exact ? 0 : (uint32_t)more);
}

static void post_recv_for(struct world *w, struct end *peer, const struct op *op)
{
	struct ibv_srq *srq = peer->side->srq;
	struct slot *s = free_slot(peer->side);
	struct ibv_recv_wr wr = {.sg_list = s->sge}, *bad = NULL;
	uint32_t part[MAX_SGE];
	int err;

	s->num_sge = split(&w->rng, recv_capacity(w, op, srq), w->plan.recv_sge, false, part);
	lay(&w->rng, &peer->side->recv, s->off, s->sge, s->num_sge, part);
	s->busy = true;
	s->wr_id = srq ? (uint64_t)(s - peer->side->slot) : draw_id(w);
	wr.wr_id = s->wr_id;
	wr.num_sge = s->num_sge;
	if (srq)
		err = ibv_post_srq_recv(srq, &wr, &bad);
	else
		err = ibv_post_recv(peer->q.qp, &wr, &bad);
	vu_check(!err, "posting a receive: %s", strerror(err));
	if (!srq) {
		peer->rq[(peer->rq_head + peer->rq_len) % peer->rq_cap] = s;
		peer->rq_len++;
	}
}

/* Post the receive and note the message down in the peer's inbox. */
static void announce(struct world *w, struct end *e, const struct op *op)
{
	struct end *peer = e->peer;
	struct msg *m = vu_alloc(sizeof(*m));

	post_recv_for(w, peer, op);
	++*recv_used(peer);
	peer->rcq->reserved++;
	m->opcode = op->wr.opcode;
	m->len = op->len;
	m->imm = op->wr.imm_data;
	m->serial = op->serial;
	m->silent = op->silent;
	if (is_message(op->wr.opcode)) {
		m->data = vu_alloc(op->len);
		gather(op, m->data);
	}
	STAILQ_INSERT_TAIL(&peer->inbox, m, link);
}

/* ---- chains ---- */

void chain_begin(struct world *w, struct end *e)
{
	unsigned int percent = settings.api == VU_POST_WR ? 100 : 50;

	vu_check(!w->chain_len, "test bug: a chain was left unposted");
	w->chain_end = e;
	w->chain_wr_api = vu_chance(&w->rng, percent) && settings.api != VU_POST_SEND;
}

struct op *new_op(struct end *e, enum ibv_wr_opcode opcode)
{
	struct op *op = vu_alloc(sizeof(*op));

	op->wr.opcode = opcode;
	op->wr.sg_list = op->sge;
	op->serial = ++e->serial;
	return op;
}

/* From here on the operation counts as posted: the model has it, its queue entries are taken. */
void chain_append(struct world *w, struct op *op)
{
	struct end *e = w->chain_end;

	if (consumes_recv(op->wr.opcode))
		announce(w, e, op);
	if (op->target_len && !op->reads_target)
		apply_write(e, op);
	if (op->signaled)
		e->scq->reserved++;
	e->sq_used++;
	if (!w->chain_len++)
		w->chain = op;
	STAILQ_INSERT_TAIL(&e->ops, op, link);
}

void chain_add_random(struct world *w)
{
	struct end *e = w->chain_end;
	enum ibv_wr_opcode opcode = draw_opcode(w);
	struct op *op;

	need_all(w, e, consumes_recv(opcode));
	op = new_op(e, opcode);
	op->wr.wr_id = draw_id(w);
	draw_flags(w, e, op);
	fill_in(w, e, op);
	settle_flags(w, e, op);
	chain_append(w, op);
}

void chain_add_flush(struct world *w)
{
	struct end *e = w->chain_end;
	bool ud = w->plan.type == IBV_QPT_UD;
	struct op *op;

	need_all(w, e, ud);
	op = new_op(e, ud ? IBV_WR_SEND : IBV_WR_RDMA_WRITE);
	op->silent = op->signaled = true;
	op->wr.send_flags = IBV_SEND_SIGNALED;
	op->wr.wr_id = e->serial;
	if (ud) {
		op->wr.wr.ud.ah = e->ah;
		op->wr.wr.ud.remote_qpn = e->peer->q.qp->qp_num;
		op->wr.wr.ud.remote_qkey = VU_QKEY;
	}
	chain_append(w, op);
}

static size_t inline_bytes(const struct op *op)
{
	size_t len = 0;

	for (; op; op = STAILQ_NEXT(op, link))
		if (op->wr.send_flags & IBV_SEND_INLINE)
			len += op->len;
	return len;
}

static void copy_op(struct copy *c, size_t i, const struct op *op, size_t *used)
{
	struct ibv_sge *sge = c->sge + i * MAX_SGE;

	c->wr[i] = op->wr;
	c->wr[i].sg_list = op->wr.num_sge ? sge : NULL;
	memcpy(sge, op->sge, (size_t)op->wr.num_sge * sizeof(*sge));
	if (i)
		c->wr[i - 1].next = &c->wr[i];
	if (!(op->wr.send_flags & IBV_SEND_INLINE))
		return;
	gather(op, c->payload + *used);
	for (int k = 0; k < op->wr.num_sge; k++) {
		sge[k].addr = (uintptr_t)c->payload + *used;
		sge[k].lkey = 0xdeadbeef; /* of no meaning when inline */
		*used += sge[k].length;
	}
}

void copy_chain(struct copy *c, const struct world *w)
{
	const struct op *op = w->chain_len ? w->chain : NULL;
	size_t i = 0, used = 0;

	c->nwr = w->chain_len;
	c->payload_len = inline_bytes(op);
	c->wr = vu_alloc(c->nwr * sizeof(*c->wr));
	c->sge = vu_alloc(c->nwr * MAX_SGE * sizeof(*c->sge));
	c->payload = vu_alloc(c->payload_len);
	for (; op; op = STAILQ_NEXT(op, link))
		copy_op(c, i++, op, &used);
}

/* Nobody may look at these any more. */
void scribble(struct copy *c)
{
	memset(c->wr, 0xa5, c->nwr * sizeof(*c->wr));
	memset(c->sge, 0xa5, c->nwr * MAX_SGE * sizeof(*c->sge));
	memset(c->payload, 0xa5, c->payload_len);
	free(c->wr);
	free(c->sge);
	free(c->payload);
}

static bool chain_can_build(const struct copy *c)
{
	for (size_t i = 0; i < c->nwr; i++)
		if (!vu_wr_can(&c->wr[i]))
			return false;
	return true;
}

void chain_post(struct world *w)
{
	struct end *e = w->chain_end;
	struct ibv_send_wr *bad = NULL;
	struct copy c;
	int err;

	if (!w->chain_len)
		return;
	copy_chain(&c, w);
	err = vu_qp_post(&e->q, c.wr, &bad, w->chain_wr_api && chain_can_build(&c));
	vu_check(!err, "posting %u WRs with %u of %u slots taken: %s (at WR %td)", w->chain_len,
		 e->sq_used, e->sq_cap, strerror(err), bad ? bad - c.wr : -1);
	scribble(&c);
	w->chain_len = 0;
}

void drain(struct world *w, struct end *e)
{
	while (retire_send(w, e))
		;
	if (STAILQ_EMPTY(&e->ops))
		return;
	chain_begin(w, e);
	chain_add_flush(w);
	chain_post(w);
	retire_send(w, e);
}
