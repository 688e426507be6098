/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity_gen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
