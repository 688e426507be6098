/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity_gen.h"

#include <string.h>

#define SINK_OFF 4096

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool is_message(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV;
}

bool consumes_recv(enum ibv_wr_opcode op)
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
void free_cq_entry(struct world *w, struct box *b)
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

void need_cq(struct world *w, struct box *b, int n)
{
	int cap = w->plan.cqe;

	if (b->reserved + n > cap)
		chain_flush_if(w, true);
	while (b->reserved + n > cap)
		free_cq_entry(w, b);
}

void need_sq(struct world *w, struct end *e)
{
	chain_flush_if(w, e->sq_used == e->sq_cap);
	if (e->sq_used == e->sq_cap)
		vu_check(retire_send(w, e), "test bug: a queue full of unsignaled WRs");
}

unsigned int *recv_used(struct end *e)
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
void need_all(struct world *w, struct end *e, bool message)
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
int split(struct vu_rng *r, uint32_t len, unsigned int max, bool equal, uint32_t *part)
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
void from_source(struct vu_rng *r, const struct side *s, struct ibv_sge *sge, uint32_t len)
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

void gather(const struct op *op, uint8_t *to)
{
	for (int i = 0; i < op->wr.num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)op->sge[i].addr, op->sge[i].length);
		to += op->sge[i].length;
	}
}

/* Lay SGEs of the given lengths into @a from @off on, with gaps and in any order; the room used. */
size_t lay(struct vu_rng *r, const struct area *a, size_t off, struct ibv_sge *sge, int n,
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

uint64_t draw_id(struct world *w)
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

enum ibv_wr_opcode draw_opcode(struct world *w)
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

void draw_flags(struct world *w, struct end *e, struct op *op)
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
void settle_flags(struct world *w, struct end *e, struct op *op)
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

void apply_write(struct end *e, struct op *op)
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

void draw_send(struct world *w, struct end *e, struct op *op)
{
	op->len = draw_len(w, w->plan.recv_len);
	source_list(w, e->side, op, w->plan.sge, w->chain_wr_api);
	if (e->ah) {
		op->wr.wr.ud.ah = e->ah;
		op->wr.wr.ud.remote_qpn = e->peer->q.qp->qp_num;
		op->wr.wr.ud.remote_qkey = VU_QKEY;
	}
}

void fill_in(struct world *w, struct end *e, struct op *op)
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
