/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DATA_OFF (4096 + TARGET_DATA) /* in a target area: red zone, atomic words */
#define SINK_OFF 4096

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_message(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV;
}

static bool consumes_recv(enum ibv_wr_opcode op)
{
	return is_message(op) || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool overlap(size_t a, size_t alen, size_t b, size_t blen)
{
	return alen && blen && a < b + blen && b < a + alen;
}

/* ---- room: only what was retired counts, so that the choice does not depend on timing ---- */

static bool any_signaled(const struct end *e)
{
	const struct op *op;

	STAILQ_FOREACH(op, &e->ops, link)
	if (op->signaled)
		return true;
	return false;
}

/* Retire something of an end that has its completions on @b; only the current chain can be left. */
static void free_cq_entry(struct world *w, struct box *b)
{
	struct side *s = b->side;

	for (unsigned int i = 0; i < w->plan.pairs; i++) {
		struct end *e = &s->end[i];

		if (e->scq == b && any_signaled(e) && retire_send(w, e))
			return;
		if (e->rcq == b && retire_recv(w, e))
			return;
	}
	vu_die("test bug: a CQ is full of nothing");
}

/* Make sure that nothing waits in the chain when something has to be retired. */
static void chain_flush_if(struct world *w, bool full)
{
	if (full && w->chain_len)
		chain_post(w);
}

static void need_cq(struct world *w, struct box *b, int n)
{
	int cap = w->plan.cqe;

	if (b->reserved + n > cap)
		chain_flush_if(w, true);
	while (b->reserved + n > cap)
		free_cq_entry(w, b);
}

static void need_sq(struct world *w, struct end *e)
{
	chain_flush_if(w, e->sq_used == e->sq_cap);
	if (e->sq_used == e->sq_cap)
		vu_check(retire_send(w, e), "test bug: a queue full of unsignaled WRs");
}

static unsigned int *recv_used(struct end *e)
{
	return e->side->srq ? &e->side->srq_used : &e->rq_used;
}

/* A receive of the peer for one message more. */
static void need_recv(struct world *w, struct end *peer)
{
	unsigned int *used = recv_used(peer);

	chain_flush_if(w, *used == peer->rq_cap);
	for (unsigned int i = 0; *used == peer->rq_cap; i = (i + 1) % w->plan.pairs)
		retire_recv(w, peer->side->srq ? &peer->side->end[i] : peer);
}

/* Both completions of a message may be due on one and the same CQ; at least one entry is enough. */
static void need_all(struct world *w, struct end *e, bool message)
{
	need_sq(w, e);
	need_cq(w, e->scq, 1);
	if (!message)
		return;
	need_recv(w, e->peer);
	need_cq(w, e->peer->rcq, 1);
}

/* ---- SG lists ---- */

/* Cut @len into @n parts, odd and empty ones among them. */
static void cut(struct vu_rng *r, uint32_t len, unsigned int n, uint32_t *part)
{
	for (unsigned int i = 0; i + 1 < n; i++) {
		part[i] = (uint32_t)vu_below(r, 2 * (len / (n - i)) + 1);
		if (vu_chance(r, 10))
			part[i] = 0;
		if (part[i] > len)
			part[i] = len;
		len -= part[i];
	}
	if (n)
		part[n - 1] = len;
}

/* Into at most @max parts; the number of them. @equal: only lists that librxe's setters can do. */
static int split(struct vu_rng *r, uint32_t len, unsigned int max, bool equal, uint32_t *part)
{
	unsigned int few = max < 3 ? max : 3;
	unsigned int n = (unsigned int)vu_range(r, len ? 1 : 0, vu_chance(r, 50) ? few : max);

	if (equal && n && len % n)
		n = 1;
	if (equal)
		for (unsigned int i = 0; i < n; i++)
			part[i] = len / n;
	else
		cut(r, len, n, part);
	return (int)n;
}

/* Anywhere in the source, in one of its MRs. */
static void from_source(struct vu_rng *r, const struct side *s, struct ibv_sge *sge, uint32_t len)
{
	size_t part = s->source.len / SRC_PARTS;
	unsigned int k = (unsigned int)vu_below(r, SRC_PARTS);
	bool whole = len > part || vu_chance(r, 40);
	size_t room = (whole ? s->source.len : part) - len;
	size_t off = vu_below(r, room + 1) + (whole ? 0 : k * part);

	sge->addr = (uintptr_t)s->source.live + off;
	sge->length = len;
	sge->lkey = whole ? s->source.mr->lkey : s->part[k]->lkey;
}

static void source_list(struct world *w, const struct side *s, struct op *op, unsigned int max,
			bool equal)
{
	uint32_t part[MAX_SGE];

	op->wr.num_sge = split(&w->rng, op->len, max, equal, part);
	for (int i = 0; i < op->wr.num_sge; i++)
		from_source(&w->rng, s, &op->sge[i], part[i]);
}

static void gather(const struct op *op, uint8_t *to)
{
	for (int i = 0; i < op->wr.num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)op->sge[i].addr, op->sge[i].length);
		to += op->sge[i].length;
	}
}

/* Lay SGEs of the given lengths into @a from @off on, with gaps and in any order; the room used. */
static size_t lay(struct vu_rng *r, const struct area *a, size_t off, struct ibv_sge *sge, int n,
		  const uint32_t *part)
{
	bool backwards = vu_chance(r, 50);
	size_t at = off;

	for (int k = 0; k < n; k++) {
		int i = backwards ? n - 1 - k : k;

		at += vu_below(r, 16);
		sge[i] = (struct ibv_sge){(uintptr_t)a->live + at, part[i], a->mr->lkey};
		at += part[i];
	}
	return at - off;
}

/* ---- hazards ---- */

static bool sink_busy(const struct end *e, size_t off, size_t len)
{
	const struct op *op;

	STAILQ_FOREACH(op, &e->ops, link)
	if (overlap(off, len, op->sink_off, op->sink_len))
		return true;
	return false;
}

static bool being_read(const struct end *e, size_t off, size_t len)
{
	const struct op *op;

	STAILQ_FOREACH(op, &e->ops, link)
	if (op->reads_target && overlap(off, len, op->target_off, op->target_len))
		return true;
	return false;
}

/* Retire at least one op, with the help of a new one if all that is posted is unsignaled. */
static void retire_some(struct world *w, struct end *e)
{
	if (retire_send(w, e))
		return;
	chain_add_flush(w);
	chain_post(w);
	retire_send(w, e);
}

/* Room for @len bytes in the sink that no READ under way writes to. */
static size_t sink_room(struct world *w, struct end *e, size_t len)
{
	size_t off = e->sink_next;

	if (off < SINK_OFF || off + len > e->sink.len - SINK_OFF)
		off = SINK_OFF;
	chain_flush_if(w, sink_busy(e, off, len));
	while (sink_busy(e, off, len))
		retire_some(w, e);
	e->sink_next = off + len;
	return off;
}

/* ---- one operation ---- */

static uint32_t draw_len(struct world *w, uint32_t max)
{
	struct vu_rng *r = &w->rng;
	uint32_t mtu = vu_mtu(&w->side[0].dev), len;
	uint64_t pick = vu_below(r, 100);

	if (pick < 8)
		len = 0;
	else if (pick < 35)
		len = (uint32_t)vu_range(r, 1, 64);
	else if (pick < 65)
		len = (uint32_t)(vu_range(r, 1, 5) * mtu + vu_below(r, 5) - 2);
	else if (pick < 90)
		len = (uint32_t)vu_range(r, 1, 20000);
	else if (pick < 97)
		len = (uint32_t)vu_range(r, 1, 128 << 10);
	else
		len = (uint32_t)vu_range(r, 1, max);
	return len < max ? len : max;
}

static uint64_t draw_id(struct world *w)
{
	switch (w->plan.ids) {
	case ID_ZERO:
		return 0;
	case ID_MINUS_ONE:
		return UINT64_MAX;
	case ID_SERIAL:
		return w->id++;
	case ID_FEW:
		return vu_chance(&w->rng, 50) ? UINT64_MAX - vu_below(&w->rng, 3)
					      : vu_below(&w->rng, 3);
	default:
		return vu_rand(&w->rng);
	}
}

static enum ibv_wr_opcode draw_opcode(struct world *w)
{
	static const enum ibv_wr_opcode ud[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};
	static const enum ibv_wr_opcode uc[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE_WITH_IMM};
	static const enum ibv_wr_opcode rc[] = {IBV_WR_SEND,
						IBV_WR_SEND_WITH_IMM,
						IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE_WITH_IMM,
						IBV_WR_RDMA_READ,
						IBV_WR_RDMA_READ,
						IBV_WR_ATOMIC_CMP_AND_SWP,
						IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct vu_rng *r = &w->rng;

	if (w->plan.type == IBV_QPT_UD)
		return ud[vu_below(r, VU_ARRAY(ud))];
	if (!w->plan.reads)
		return uc[vu_below(r, VU_ARRAY(uc))];
	return rc[vu_below(r, VU_ARRAY(rc))];
}

static void draw_flags(struct world *w, struct end *e, struct op *op)
{
	struct vu_rng *r = &w->rng;
	bool last_slot = e->sq_used + 1 == e->sq_cap; /* somebody must say when it is free */

	op->signaled = !vu_chance(r, w->plan.unsignaled) || e->sig_all || last_slot;
	if (consumes_recv(op->wr.opcode) && vu_chance(r, 30))
		op->wr.send_flags |= IBV_SEND_SOLICITED;
	/* rxe 6.1 loses a QP whose fence meets a retransmission: only where asked for */
	if (w->plan.type == IBV_QPT_RC && (!w->plan.reads || settings.fence_reads) &&
	    vu_chance(r, 15))
		op->wr.send_flags |= IBV_SEND_FENCE;
}

static bool draw_inline(struct world *w, const struct end *e, const struct op *op)
{
	return op->len <= e->q.cap.max_inline_data && e->q.cap.max_inline_data &&
	       op->wr.opcode != IBV_WR_RDMA_READ && !is_atomic(op->wr.opcode) &&
	       vu_chance(&w->rng, 50);
}

/* What only the finished operation shows. */
static void settle_flags(struct world *w, struct end *e, struct op *op)
{
	op->signaled |= op->reads_target;
	if (op->signaled && !(e->sig_all && vu_chance(&w->rng, 50)))
		op->wr.send_flags |= IBV_SEND_SIGNALED;
	if (draw_inline(w, e, op))
		op->wr.send_flags |= IBV_SEND_INLINE;
}

/* The key by which the peer's target area is reached: its window's, when that covers the bytes. */
static uint32_t target_key(struct world *w, const struct end *peer, size_t off, size_t len)
{
	const struct window *win = &peer->win;
	bool use = vu_chance(&w->rng, 70);

	if (win->bound && use && off >= win->off && off + len <= win->off + win->len)
		return win->rkey;
	return peer->target.mr->rkey;
}

static void draw_target(struct world *w, struct end *e, struct op *op)
{
	struct area *a = &e->peer->target;
	size_t room = a->len - 4096 - DATA_OFF - op->len;

	op->target_off = DATA_OFF + vu_below(&w->rng, room + 1);
	op->target_len = op->len;
	if (vu_chance(&w->rng, 25) && e->last_len && e->last_off + op->len <= a->len - 4096)
		op->target_off = e->last_off; /* over what was written last */
	vu_wr_remote(&op->wr, a->live + op->target_off,
		     target_key(w, e->peer, op->target_off, op->len));
}

static void draw_write(struct world *w, struct end *e, struct op *op)
{
	bool fenced = op->wr.send_flags & IBV_SEND_FENCE;

	op->len = draw_len(w, w->plan.max_len);
	source_list(w, e->side, op, w->plan.sge, w->chain_wr_api);
	draw_target(w, e, op);
	if (fenced)
		return;
	chain_flush_if(w, being_read(e, op->target_off, op->target_len));
	while (being_read(e, op->target_off, op->target_len))
		retire_some(w, e);
}

static void apply_write(struct end *e, struct op *op)
{
	gather(op, e->peer->target.model + op->target_off);
	if (!op->len)
		return;
	e->last_write = op->serial;
	e->last_off = op->target_off;
	e->last_len = op->len;
}

/* Lay the result of a READ or atomic into the sink and let the model have it. */
static void result_to(struct world *w, struct end *e, struct op *op, const uint8_t *bytes, int n,
		      const uint32_t *part)
{
	size_t off;

	op->sink_len = op->len + 16u * (unsigned int)n;
	op->sink_off = sink_room(w, e, op->sink_len);
	op->wr.num_sge = n;
	lay(&w->rng, &e->sink, op->sink_off, op->sge, n, part);
	for (int i = 0; i < n; i++) {
		off = op->sge[i].addr - (uintptr_t)e->sink.live;
		memcpy(e->sink.model + off, bytes, part[i]);
		bytes += part[i];
	}
}

static void draw_read(struct world *w, struct end *e, struct op *op)
{
	struct area *source = &e->peer->side->source;
	uint32_t part[MAX_SGE];
	size_t off;
	int n;

	op->len = draw_len(w, w->plan.max_len);
	n = split(&w->rng, op->len, w->plan.sge, w->chain_wr_api, part);
	op->reads_target = vu_chance(&w->rng, 50);
	if (op->reads_target) { /* must see what this QP has written before */
		draw_target(w, e, op);
		result_to(w, e, op, e->peer->target.model + op->target_off, n, part);
	} else {
		off = vu_below(&w->rng, source->len - op->len + 1);
		vu_wr_remote(&op->wr, source->live + off, source->mr->rkey);
		result_to(w, e, op, source->model + off, n, part);
	}
}

static void draw_atomic(struct world *w, struct end *e, struct op *op)
{
	struct area *a = &e->peer->target;
	size_t off = 4096 + 8 * vu_below(&w->rng, ATOMIC_WORDS);
	bool swap = op->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP, hit = vu_chance(&w->rng, 60);
	const uint32_t part = 8;
	uint64_t now;

	op->len = 8;
	memcpy(&op->old, a->model + off, 8);
	result_to(w, e, op, a->model + off, 1, &part);
	op->wr.wr.atomic.compare_add = swap && hit ? op->old : vu_rand(&w->rng);
	op->wr.wr.atomic.swap = swap ? vu_rand(&w->rng) : 0;
	vu_wr_remote(&op->wr, a->live + off, a->mr->rkey);
	now = op->old + op->wr.wr.atomic.compare_add;
	if (swap)
		now = op->wr.wr.atomic.compare_add == op->old ? op->wr.wr.atomic.swap : op->old;
	memcpy(a->model + off, &now, 8);
}

static void draw_send(struct world *w, struct end *e, struct op *op)
{
	op->len = draw_len(w, w->plan.recv_len);
	source_list(w, e->side, op, w->plan.sge, w->chain_wr_api);
	if (e->ah) {
		op->wr.wr.ud.ah = e->ah;
		op->wr.wr.ud.remote_qpn = e->peer->q.qp->qp_num;
		op->wr.wr.ud.remote_qkey = VU_QKEY;
	}
}

static void fill_in(struct world *w, struct end *e, struct op *op)
{
	if (is_atomic(op->wr.opcode))
		draw_atomic(w, e, op);
	else if (op->wr.opcode == IBV_WR_RDMA_READ)
		draw_read(w, e, op);
	else if (is_message(op->wr.opcode))
		draw_send(w, e, op);
	else
		draw_write(w, e, op);
	if (op->wr.opcode == IBV_WR_SEND_WITH_IMM || op->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		op->wr.imm_data = (uint32_t)vu_rand(&w->rng);
}

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

static struct op *new_op(struct end *e, enum ibv_wr_opcode opcode)
{
	struct op *op = vu_alloc(sizeof(*op));

	op->wr.opcode = opcode;
	op->wr.sg_list = op->sge;
	op->serial = ++e->serial;
	return op;
}

/* From here on the operation counts as posted: the model has it, its queue entries are taken. */
static void chain_append(struct world *w, struct op *op)
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

/* The program's own copy of a chain, as it may be thrown away after the post. */
struct copy {
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint8_t *payload; /* of the inline ones */
	size_t nwr, payload_len;
};

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

static void copy_chain(struct copy *c, const struct world *w)
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
static void scribble(struct copy *c)
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

/* ---- posts that must be refused ---- */

/* A WR with one SGE too many, or more inline bytes than the QP takes. */
static void make_bad(struct world *w, const struct end *e, struct ibv_send_wr *wr,
		     struct ibv_sge *sge)
{
	bool many = vu_chance(&w->rng, 50) && e->q.cap.max_send_sge < MAX_SGE;
	unsigned int n = many ? e->q.cap.max_send_sge + 1 : 1;

	*wr = vu_wr(IBV_WR_RDMA_WRITE, sge, vu_rand(&w->rng), IBV_SEND_SIGNALED);
	vu_wr_remote(wr, e->peer->target.live + DATA_OFF, e->peer->target.mr->rkey);
	if (w->plan.type == IBV_QPT_UD) {
		wr->opcode = IBV_WR_SEND;
		wr->wr.ud.ah = e->ah;
	}
	wr->num_sge = (int)n;
	for (unsigned int i = 0; i < n; i++)
		from_source(&w->rng, e->side, &sge[i], many ? 1 : e->q.cap.max_inline_data + 1);
	if (!many)
		wr->send_flags |= IBV_SEND_INLINE;
}

/* A few good WRs, a bad one, and good ones again that must never go. */
void post_bad_chain(struct world *w, struct end *e)
{
	unsigned int good = (unsigned int)vu_below(&w->rng, 3), sent;
	struct ibv_send_wr bad_wr[2], *bad = NULL, *head = &bad_wr[0];
	struct ibv_sge sge[MAX_SGE + 1], after;
	struct copy c;
	int err;

	chain_begin(w, e);
	for (unsigned int i = 0; i < good; i++)
		chain_add_random(w);
	if (e->sq_used + 2 > e->sq_cap) /* ENOMEM would come first */
		chain_post(w);
	need_sq(w, e);
	make_bad(w, e, &bad_wr[0], sge);
	bad_wr[1] = bad_wr[0];
	from_source(&w->rng, e->side, &after, 1);
	bad_wr[1].sg_list = &after;
	bad_wr[1].num_sge = 1;
	bad_wr[1].send_flags = IBV_SEND_SIGNALED;
	bad_wr[0].next = &bad_wr[1];

	sent = w->chain_len;
	copy_chain(&c, w);
	if (sent) {
		c.wr[sent - 1].next = &bad_wr[0];
		head = c.wr;
	}
	w->chain_len = 0;
	err = ibv_post_send(e->q.qp, head, &bad);
	vu_check(err && bad == &bad_wr[0], "a bad WR after %u good ones: %s, bad_wr %s", sent,
		 strerror(err), bad == &bad_wr[0] ? "right" : "wrong");
	vu_log("%u bad WR after %u: %d\n", e->pair, sent, err);
	scribble(&c);
}

/* With every slot of the send queue taken, one more: refused, or taken if a slot came free. */
void post_too_many(struct world *w, struct end *e)
{
	struct ibv_send_wr *bad = NULL;
	struct op *op;
	int err;

	if (w->plan.type == IBV_QPT_UD || w->plan.cqe <= (int)e->sq_cap)
		return;
	while (e->scq->reserved + (int)(e->sq_cap + 1 - e->sq_used) > w->plan.cqe)
		free_cq_entry(w, e->scq);
	chain_begin(w, e);
	while (e->sq_used < e->sq_cap)
		chain_add_flush(w);
	chain_post(w);

	op = new_op(e, IBV_WR_RDMA_WRITE);
	op->wr.wr_id = op->serial;
	op->wr.send_flags = IBV_SEND_SIGNALED;
	op->signaled = op->silent = true;
	STAILQ_INSERT_TAIL(&e->ops, op, link);
	err = ibv_post_send(e->q.qp, &op->wr, &bad);
	if (err) {
		vu_check(err == ENOMEM && bad == &op->wr, "one WR too many: %s, bad_wr %s",
			 strerror(err), bad == &op->wr ? "right" : "wrong");
		STAILQ_REMOVE(&e->ops, op, op, link);
		free(op);
	} else {
		e->sq_used++;
		e->scq->reserved++;
	}
	drain(w, e);
}

/* Built with ibv_wr_* and then thrown away: must leave no trace. */
void post_aborted(struct world *w, struct end *e)
{
	struct ibv_sge sge;

	if (!e->q.ex || w->plan.type == IBV_QPT_UD || e->sq_used == e->sq_cap)
		return;
	from_source(&w->rng, e->side, &sge, 100);
	ibv_wr_start(e->q.ex);
	e->q.ex->wr_id = vu_rand(&w->rng);
	e->q.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(e->q.ex, e->peer->target.mr->rkey,
			  (uintptr_t)e->peer->target.live + DATA_OFF);
	ibv_wr_set_sge(e->q.ex, sge.lkey, sge.addr, sge.length);
	ibv_wr_abort(e->q.ex);
}

/* ---- memory windows: bind, use (see target_key), invalidate from here or from the peer ---- */

/*
 * A WR that stays inside the device, and one after it that does not: rxe 6.1 may leave a lone one
 * in the queue until something else happens on the QP.
 */
static void post_followed(struct world *w, struct end *e, struct op *op)
{
	op->signaled = true;
	op->wr.send_flags |= IBV_SEND_SIGNALED;
	op->wr.wr_id = draw_id(w);
	chain_begin(w, e);
	chain_append(w, op);
	chain_add_flush(w);
	chain_post(w);
}

static void make_room_for_two(struct world *w, struct end *e)
{
	drain(w, e);
	need_cq(w, e->scq, 2);
}

static void bind_window(struct world *w, struct end *e)
{
	struct window *win = &e->win;
	struct op *op;
	size_t room = e->target.len - 4096 - DATA_OFF;

	win->len = vu_range(&w->rng, 1, room);
	win->off = DATA_OFF + vu_below(&w->rng, room - win->len + 1);
	make_room_for_two(w, e);
	op = new_op(e, IBV_WR_BIND_MW);
	op->wr.bind_mw.mw = win->mw;
	op->wr.bind_mw.rkey = ibv_inc_rkey(win->rkey);
	op->wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = e->target.mr,
		.addr = (uintptr_t)e->target.live + win->off,
		.length = win->len,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	win->rkey = op->wr.bind_mw.rkey;
	post_followed(w, e, op);
	drain(w, e);
	win->mw->rkey = win->rkey;
	win->bound = true;
}

static void local_invalidate(struct world *w, struct end *e)
{
	struct op *op;

	drain(w, e->peer); /* nobody uses it any more */
	e->win.bound = false;
	make_room_for_two(w, e);
	op = new_op(e, IBV_WR_LOCAL_INV);
	op->wr.invalidate_rkey = e->win.rkey;
	post_followed(w, e, op);
	drain(w, e);
}

static void remote_invalidate(struct world *w, struct end *e)
{
	struct end *peer = e->peer;
	struct op *op;

	drain(w, peer); /* a READ through the window is not ordered before a SEND */
	e->win.bound = false;
	make_room_for_two(w, peer);
	need_all(w, peer, true);
	op = new_op(peer, IBV_WR_SEND_WITH_INV);
	draw_send(w, peer, op);
	op->wr.invalidate_rkey = e->win.rkey;
	post_followed(w, peer, op);
	drain(w, peer);
	retire_all_recv(w, e);
}

void window_step(struct world *w, struct end *e)
{
	bool remote = vu_chance(&w->rng, 50);

	if (!e->win.mw)
		return;
	if (!e->win.bound)
		bind_window(w, e);
	else if (remote)
		remote_invalidate(w, e);
	else
		local_invalidate(w, e);
}
