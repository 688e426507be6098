/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 16
#define LOST_EVENT_MS 20000

static char side_name(const struct end *e)
{
	return e->peer->side > e->side ? 'a' : 'b';
}

/* ---- a completion arrives: sending ---- */

/* The bytes that @op's SG list names, as its end's sink has them now, against the model. */
static void check_sink(const struct end *e, const struct op *op)
{
	const struct area *a = &e->sink;

	if (memcmp(a->live + op->sink_off, a->model + op->sink_off, op->sink_len))
		vu_die("pair %u%c: %s serial %" PRIu64 " of %u bytes brought wrong bytes, or "
		       "changed what is between its SGEs",
		       e->pair, side_name(e), vu_opcode_name(op->wr.opcode), op->serial, op->len);
}

/* What was written last is there, unless something newer is on its way. */
static void check_last_write(const struct end *e, uint64_t serial, const char *when)
{
	const struct area *a = &e->peer->target;

	if (e->last_write > serial || !e->last_len)
		return;
	if (memcmp(a->live + e->last_off, a->model + e->last_off, e->last_len))
		vu_die("pair %u%c: %zu bytes written by serial %" PRIu64 " are not all there at "
		       "the %s of serial %" PRIu64,
		       e->pair, side_name(e), e->last_len, e->last_write, when, serial);
}

static bool byte_len_defined(const struct op *op)
{
	return op->wr.opcode == IBV_WR_RDMA_READ || op->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       op->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void check_send_wc(const struct end *e, const struct op *op, const struct ibv_wc *wc)
{
	vu_check(wc->wr_id == op->wr.wr_id,
		 "pair %u%c: completion with wr_id %#" PRIx64 " where serial %" PRIu64
		 " (%s, wr_id %#" PRIx64 ") is next",
		 e->pair, side_name(e), wc->wr_id, op->serial, vu_opcode_name(op->wr.opcode),
		 op->wr.wr_id);
	vu_check(wc->opcode == vu_wc_opcode(op->wr.opcode),
		 "pair %u%c: serial %" PRIu64 " (%s) completed with opcode %d", e->pair,
		 side_name(e), op->serial, vu_opcode_name(op->wr.opcode), (int)wc->opcode);
	if (byte_len_defined(op))
		vu_check(wc->byte_len == op->len,
			 "pair %u%c: serial %" PRIu64
			 " (%s) of %u bytes completed with byte_len %u",
			 e->pair, side_name(e), op->serial, vu_opcode_name(op->wr.opcode), op->len,
			 wc->byte_len);
}

static struct op *next_signaled(struct end *e)
{
	struct op *op;

	STAILQ_FOREACH(op, &e->ops, link)
	if (op->signaled && !op->arrived)
		return op;
	return NULL;
}

static void on_send(struct end *e, const struct ibv_wc *wc)
{
	struct op *op, *done = next_signaled(e);

	if (!done)
		vu_die("pair %u%c: a completion (wr_id %#" PRIx64 ", opcode %d) too many", e->pair,
		       side_name(e), wc->wr_id, (int)wc->opcode);
	check_send_wc(e, done, wc);
	done->wc = *wc;
	STAILQ_FOREACH(op, &e->ops, link)
	{ /* the unsignaled ones before it are done as well */
		if (!op->arrived && op->sink_len)
			check_sink(e, op);
		op->arrived = true;
		if (op == done)
			break;
	}
	if (e->q.qp->qp_type == IBV_QPT_RC) /* acknowledged by the target */
		check_last_write(e, done->serial, "completion");
}

/* ---- a completion arrives: receiving ---- */

static struct slot *take_slot(struct end *e, uint64_t wr_id)
{
	struct slot *s;

	if (e->side->srq) {
		vu_check(wr_id < e->side->nslot && e->side->slot[wr_id].busy,
			 "pair %u: receive completion of an SRQ entry %#" PRIx64 " never posted",
			 e->pair, wr_id);
		return &e->side->slot[wr_id];
	}
	vu_check(e->rq_len, "pair %u: more receive completions than receives", e->pair);
	s = e->rq[e->rq_head];
	e->rq_head = (e->rq_head + 1) % e->rq_cap;
	e->rq_len--;
	vu_check(s->wr_id == wr_id,
		 "pair %u: receive completion with wr_id %#" PRIx64 " instead of %#" PRIx64,
		 e->pair, wr_id, s->wr_id);
	return s;
}

/* In the model, put @data (after @grh bytes that are not ours to predict) where the SGEs say. */
static void scatter_model(struct end *e, const struct slot *s, const uint8_t *data, uint32_t len,
			  uint32_t grh)
{
	struct area *a = &e->side->recv;
	uint32_t part, skip;
	size_t off;

	for (int i = 0; i < s->num_sge; i++) {
		off = s->sge[i].addr - (uintptr_t)a->live;
		skip = grh < s->sge[i].length ? grh : s->sge[i].length;
		memcpy(a->model + off, a->live + off, skip);
		grh -= skip;
		part = s->sge[i].length - skip < len ? s->sge[i].length - skip : len;
		memcpy(a->model + off + skip, data, part);
		data += part;
		len -= part;
	}
	vu_check(!len, "test bug: a receive shorter than its message");
}

static void check_slot(const struct end *e, const struct slot *s, const struct msg *m)
{
	const struct area *a = &e->side->recv;

	if (memcmp(a->live + s->off, a->model + s->off, e->side->slot_room))
		vu_die("pair %u%c: %s of %u bytes received with wrong bytes, or beyond its end",
		       e->pair, side_name(e), vu_opcode_name(m->opcode), m->len);
}

static unsigned int recv_flags(const struct end *e, const struct msg *m)
{
	unsigned int flags = e->q.qp->qp_type == IBV_QPT_UD ? IBV_WC_GRH : 0;

	if (m->opcode == IBV_WR_SEND_WITH_IMM || m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= IBV_WC_WITH_IMM;
	if (m->opcode == IBV_WR_SEND_WITH_INV)
		flags |= IBV_WC_WITH_INV;
	return flags;
}

/* As the specification has them: rxe says GRH for any QP, and gives the kernel's number for INV. */
static unsigned int plain_flags(const struct end *e, const struct ibv_wc *wc)
{
	unsigned int flags = wc->wc_flags;

	if (e->q.qp->qp_type != IBV_QPT_UD)
		flags &= ~(unsigned int)IBV_WC_GRH;
	if (e->side->dev.is_rxe && (flags & IBV_WC_IP_CSUM_OK))
		flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
	return flags;
}

static void check_recv_wc(const struct end *e, const struct msg *m, const struct ibv_wc *wc)
{
	bool write = m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t grh = e->q.qp->qp_type == IBV_QPT_UD ? UD_GRH : 0;
	const char *name = vu_opcode_name(m->opcode);

	vu_check(wc->opcode == (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV),
		 "pair %u: %s received with opcode %d", e->pair, name, (int)wc->opcode);
	vu_check(plain_flags(e, wc) == recv_flags(e, m), "pair %u: %s received with wc_flags %#x",
		 e->pair, name, wc->wc_flags);
	if (plain_flags(e, wc) & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
		vu_check(wc->imm_data == m->imm, "pair %u: %s brought immediate %#x, not %#x",
			 e->pair, name, wc->imm_data, m->imm);
	if (!write || settings.imm_len)
		vu_check(wc->byte_len == m->len + grh,
			 "pair %u: %s of %u bytes received with byte_len %u", e->pair, name, m->len,
			 wc->byte_len);
	if (grh)
		vu_check(wc->src_qp == e->peer->q.qp->qp_num, "pair %u: src_qp %u", e->pair,
			 wc->src_qp);
}

static void on_recv(struct end *e, const struct ibv_wc *wc)
{
	uint32_t grh = e->q.qp->qp_type == IBV_QPT_UD ? UD_GRH : 0;
	struct slot *s = take_slot(e, wc->wr_id);
	struct msg *m;

	STAILQ_FOREACH(m, &e->inbox, link)
	if (!m->arrived)
		break;
	vu_check(m, "pair %u: a receive completion too many (opcode %d)", e->pair, (int)wc->opcode);
	check_recv_wc(e, m, wc);
	if (m->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		scatter_model(e, s, m->data, m->len, grh);
	check_slot(e, s, m);
	check_last_write(e->peer, m->serial, "reception");
	m->wc = *wc;
	m->arrived = true;
	s->busy = false;
}

/* ---- polling ---- */

static void on_wc(struct world *w, struct box *b, const struct ibv_wc *wc)
{
	struct end *e = world_end(b->side, wc->qp_num);

	vu_check(e, "a completion of an unknown QP %u", wc->qp_num);
	vu_check(wc->status == IBV_WC_SUCCESS, "pair %u%c: wr_id %#" PRIx64 ": %s (vendor %#x)",
		 e->pair, side_name(e), wc->wr_id, ibv_wc_status_str(wc->status), wc->vendor_err);
	if (wc->opcode & IBV_WC_RECV) {
		vu_check(e->rcq == b, "pair %u: receive completion on another CQ", e->pair);
		w->messages++;
		on_recv(e, wc);
	} else {
		vu_check(e->scq == b, "pair %u: send completion on another CQ", e->pair);
		w->completions++;
		on_send(e, wc);
	}
}

static bool pump_box(struct world *w, struct box *b)
{
	int n, ask = (int)vu_range(&w->poll_rng, 1, vu_chance(&w->poll_rng, 50) ? 1 : BATCH);
	struct ibv_wc wc[BATCH];

	memset(wc, 0x5a, sizeof(wc));
	n = vu_cq_poll(&b->cq, ask, wc, vu_poll_ex(settings.poll, &w->poll_rng));
	vu_check(n >= 0 && n <= ask, "polling for %d entries: %d", ask, n);
	for (int i = 0; i < n; i++)
		on_wc(w, b, &wc[i]);
	return n > 0;
}

bool pump(struct world *w)
{
	bool any = false;

	for (unsigned int i = 0; i < 2; i++)
		for (unsigned int k = 0; k < w->side[i].nbox; k++)
			any |= pump_box(w, &w->side[i].box[k]);
	return any;
}

static void take_event(struct world *w, struct box *b)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;

	vu_check(!ibv_get_cq_event(b->cq.channel, &cq, &context), "ibv_get_cq_event: %s",
		 strerror(errno));
	vu_check(cq == b->cq.cq && context == b, "an event of another CQ");
	b->armed = false;
	b->cq.unacked++;
	if (vu_chance(&w->poll_rng, 30)) {
		ibv_ack_cq_events(b->cq.cq, b->cq.unacked);
		b->cq.unacked = 0;
	}
}

/* Sleep until @b has an entry. */
static void wait_event(struct world *w, struct box *b)
{
	struct pollfd p = {.fd = b->cq.channel->fd, .events = POLLIN};

	if (!b->armed) {
		vu_check(!ibv_req_notify_cq(b->cq.cq, 0), "ibv_req_notify_cq: %s", strerror(errno));
		b->armed = true;
		if (pump_box(w, b))
			return;
	}
	if (poll(&p, 1, LOST_EVENT_MS) != 1) {
		world_print(w);
		vu_die("no event for %d ms; %s", LOST_EVENT_MS,
		       pump_box(w, b) ? "yet there is a completion: a lost wake-up"
				      : "no completion either: the work stands still");
	}
	take_event(w, b);
}

static void wait_for(struct world *w, struct box *b, const bool *arrived)
{
	while (!*arrived) {
		if (pump(w))
			continue;
		if (b->cq.channel)
			wait_event(w, b);
		else
			sched_yield();
	}
}

/* ---- retiring ---- */

static void log_op(const struct end *e, const struct op *op)
{
	const struct ibv_wc *wc = &op->wc;

	vu_log("%u%c %" PRIu64 " %s len %u id %#" PRIx64 " flags %#x", e->pair, side_name(e),
	       e->logged, vu_opcode_name(op->wr.opcode), op->len, op->wr.wr_id, op->wr.send_flags);
	if (op->signaled) {
		vu_log(" -> opcode %d", (int)wc->opcode);
		if (!settings.loose_wc)
			vu_log(" byte_len %u wc_flags %#x", wc->byte_len, wc->wc_flags);
	}
	if (op->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    op->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		vu_log(" old %#" PRIx64, op->old);
	vu_log("\n");
}

static void retire_op(struct end *e)
{
	struct op *op = STAILQ_FIRST(&e->ops);

	STAILQ_REMOVE_HEAD(&e->ops, link);
	e->sq_used--;
	if (op->signaled)
		e->scq->reserved--;
	if (!op->silent) {
		log_op(e, op);
		e->logged++;
	}
	free(op);
}

bool retire_send(struct world *w, struct end *e)
{
	struct op *op, *oldest = NULL;

	STAILQ_FOREACH(op, &e->ops, link)
	if (op->signaled && !oldest)
		oldest = op;
	if (!oldest)
		return false;
	vu_at("waiting for a send completion");
	wait_for(w, e->scq, &oldest->arrived);
	vu_at("posting");
	while (STAILQ_FIRST(&e->ops) != oldest)
		retire_op(e);
	retire_op(e);
	return true;
}

static void log_msg(struct end *e, const struct msg *m)
{
	const struct ibv_wc *wc = &m->wc;
	bool write = m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	vu_log("%u%c recv %" PRIu64 " %s opcode %d wc_flags %#x", e->pair, side_name(e),
	       e->msgs_logged++, vu_opcode_name(m->opcode), (int)wc->opcode, wc->wc_flags);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		vu_log(" imm %#x", wc->imm_data);
	if (!write || settings.imm_len)
		vu_log(" byte_len %u", wc->byte_len);
	if (m->data)
		vu_log(" bytes %016" PRIx64, vu_hash(m->data, m->len, 0));
	vu_log("\n");
}

bool retire_recv(struct world *w, struct end *e)
{
	struct msg *m = STAILQ_FIRST(&e->inbox);

	if (!m)
		return false;
	vu_at("waiting for a receive completion");
	wait_for(w, e->rcq, &m->arrived);
	vu_at("posting");
	STAILQ_REMOVE_HEAD(&e->inbox, link);
	if (e->side->srq)
		e->side->srq_used--;
	else
		e->rq_used--;
	e->rcq->reserved--;
	if (!m->silent)
		log_msg(e, m);
	free(m->data);
	free(m);
	return true;
}

void retire_all_recv(struct world *w, struct end *e)
{
	while (retire_recv(w, e))
		;
}
