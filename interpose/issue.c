/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the software queues into the NIC: QPs that have something to send stand in a list per device
 * and take turns; one thread at a time works it off (whoever posts, polls, or the progress thread).
 */
#include "interpose/shim.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/*
 * A piece is signaled, and accounted at the port with the loose ones before it, when this much has
 * gathered: completions of every few bytes would cost more than they tell.
 */
#define LOOSE_BYTES 4096
#define CLOCK_EVERY 8 /* chunks: reading the clock takes half as long as all the rest of a post */

enum verdict { ALL_SENT, MORE_TO_SEND, NO_WINDOW, NO_ROOM };

struct cursor { /* to take back what the provider refused */
	uint64_t wr_cut;
	uint64_t cut;
	uint32_t sge_at, sge_off;
	bool started;
	uint64_t loose_bytes;
	uint32_t loose;
};

struct chain {
	int n;
	bool recorded; /* all of it, or nothing */
	int rooms;     /* of cq->room; only who has pump_lock takes any, so all are taken at once */
	int work;      /* what q->work changes by */
	int cut;       /* WRs of which this is the first of several pieces */
	uint64_t bytes;
	uint64_t left;	 /* bytes that it may still grow by */
	uint64_t credit; /* taken at the port, for the next pieces */
	bool shut;	 /* the port has no more */
	bool force;
	uint64_t now;
	struct ibv_send_wr wr[RNICE_CHAIN];
	struct cursor before[RNICE_CHAIN];
};

/* ---- the list ---- */

static void enlist(struct dev *dev, struct qp *q, bool first)
{
	struct qp **at;

	pthread_mutex_lock(&dev->list_lock);
	if (!q->listed && !load_relaxed(&q->dying)) {
		at = first || !dev->last ? &dev->first : &dev->last->wait_next;
		q->listed = true;
		q->wait_next = *at;
		*at = q;
		if (!q->wait_next)
			dev->last = q;
		atomic_fetch_add(&dev->waiting, 1);
	}
	pthread_mutex_unlock(&dev->list_lock);
}

void dev_enlist(struct dev *dev, struct qp *q)
{
	enlist(dev, q, false);
}

static struct qp *pop(struct dev *dev)
{
	struct qp *q;

	pthread_mutex_lock(&dev->list_lock);
	q = dev->first;
	if (q) {
		dev->first = q->wait_next;
		if (!dev->first)
			dev->last = NULL;
		q->listed = false;
		atomic_fetch_sub(&dev->waiting, 1);
	}
	pthread_mutex_unlock(&dev->list_lock);
	return q;
}

void dev_delist(struct dev *dev, struct qp *q)
{
	struct qp **p, *prev = NULL;

	pthread_mutex_lock(&dev->list_lock);
	for (p = &dev->first; *p; prev = *p, p = &(*p)->wait_next)
		if (*p == q) {
			*p = q->wait_next;
			if (dev->last == q)
				dev->last = prev;
			q->listed = false;
			atomic_fetch_sub(&dev->waiting, 1);
			break;
		}
	pthread_mutex_unlock(&dev->list_lock);
}

/* ---- one chunk ---- */

/*
 * Loose pieces hold places in the CQ until a signaled one behind them completes: they may have half
 * of the places, so that the signaled one still finds one.
 */
static bool short_of_room(const struct cq *cq, int room)
{
	return room * 2 <= load_relaxed(&cq->spare);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* How many pieces like this one, of @bytes, @w has for the chain. */
static unsigned alike(const struct qp *q, const struct swr *w, uint64_t bytes, int room,
		      const struct chain *chain)
{
	uint64_t n = least((uint64_t)(RNICE_CHAIN - chain->n), q->ck_max - sendq_inside(q));

	n = least(n, least(w->length - w->cut, chain->left) / bytes);
	n = least(n, (uint64_t)(room > 0 ? room : 0));
	return n ? (unsigned)n : 1;
}

/* Bytes for @c, @room places of the CQ being left: several pieces are asked for at once. */
static bool take(struct qp *q, const struct swr *w, const struct chunk *c, int room,
		 struct chain *chain)
{
	unsigned n = c->bytes == c->length && !c->last ? alike(q, w, c->bytes, room, chain) : 1;

	if (c->bytes <= chain->credit) {
		chain->credit -= c->bytes;
		return true;
	}
	if (chain->shut)
		return false;
	n = rnice_port_take_some(q->ctx->dev->port, c->bytes, n, chain->now, &chain->shut);
	if (n)
		chain->credit += (n - 1) * c->bytes;
	return n;
}

/* A loose piece of @length bytes would be one too many; @room places are left in the CQ. */
static bool must_signal(const struct qp *q, uint64_t length, int room)
{
	uint64_t depth = q->ck_max - (q->nat_head - q->nat_done); /* for chunks */

	return q->loose_bytes + length >= LOOSE_BYTES || (q->loose + 1) * 4 >= depth ||
	       short_of_room(q->scq, room);
}

/*
 * May a piece of @bytes go now? Fills @c with what it holds then. Loose pieces ride for free until
 * the next signaled one pays for them: at most LOOSE_BYTES per QP beside the window.
 */
static enum verdict admit(struct qp *q, const struct swr *w, uint64_t bytes, struct chain *chain,
			  struct chunk *c)
{
	int room = load_relaxed(&q->scq->room) - chain->rooms;

	if (sendq_inside(q) >= q->ck_max)
		return NO_ROOM;
	c->natives = q->nat_head;
	c->posted = chain->now;
	c->length = bytes;
	c->last = plan_is_last(w, bytes);
	c->signaled = (c->last && w->signaled) || q->all_signaled || must_signal(q, bytes, room);
	c->room = !c->last || (c->signaled && !w->signaled);
	c->bytes = c->signaled ? q->loose_bytes + bytes : 0;
	if (c->room && room <= 0)
		return NO_ROOM;
	if (!c->bytes || take(q, w, c, room, chain))
		return MORE_TO_SEND;
	if (chain->force) {
		c->bytes = 0; /* out of turn: not accounted */
		return MORE_TO_SEND;
	}
	return NO_WINDOW;
}

static void remember(const struct qp *q, const struct swr *w, struct cursor *cur)
{
	cur->wr_cut = q->wr_cut;
	cur->cut = w->cut;
	cur->sge_at = w->sge_at;
	cur->sge_off = w->sge_off;
	cur->started = w->started;
	cur->loose = q->loose;
	cur->loose_bytes = q->loose_bytes;
}

static void count_loose(struct qp *q, const struct chunk *c)
{
	q->loose = c->signaled ? 0 : q->loose + 1;
	q->loose_bytes = c->signaled ? 0 : q->loose_bytes + c->length;
}

/* @c is the chunk behind the last one. */
static void add_chunk(struct qp *q, struct swr *w, const struct chunk *c, struct chain *chain)
{
	struct ibv_send_wr *wr = &chain->wr[chain->n];

	remember(q, w, &chain->before[chain->n]);
	chain->cut += !c->last && !w->started;
	plan_chunk(w, c->length, wr, q->chain_sges + (size_t)chain->n * sendq_sge_places(q));
	wr->wr_id = q->id_base + q->ck_head++;
	wr->send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
	if (c->signaled)
		wr->send_flags |= IBV_SEND_SIGNALED;
	wr->next = NULL;
	if (chain->n++)
		wr[-1].next = wr;
	count_loose(q, c);
	q->wr_cut += c->last;
	chain->bytes += c->length;
	chain->rooms += c->room;
	chain->work += c->signaled - c->last;
}

/* Fill @chain while the QP may send. */
static enum verdict build(struct qp *q, struct chain *chain)
{
	uint64_t max = rnice_port_chunk(q->ctx->dev->port), piece;
	enum verdict v;
	struct chunk *c;
	struct swr *w;

	while (chain->n < RNICE_CHAIN && chain->left) {
		if (q->wr_cut == q->wr_head)
			return ALL_SENT;
		w = sendq_slot(q, q->wr_cut);
		if (chain->n && w->recorded != chain->recorded)
			break;
		chain->recorded = w->recorded;
		piece = plan_piece(w, max);
		c = &q->chunks[q->ck_head & q->ck_mask];
		v = admit(q, w, piece, chain, c);
		if (v != MORE_TO_SEND)
			return v;
		add_chunk(q, w, c, chain);
		chain->left -= least(piece, chain->left);
	}
	return q->wr_cut == q->wr_head ? ALL_SENT : MORE_TO_SEND;
}

/* ---- to the provider ---- */

/* The provider refused chain->wr[from] and did not see the rest: as if they had never been cut. */
static void take_back(struct qp *q, struct chain *chain, int from, uint64_t now)
{
	const struct cursor *cur = &chain->before[from];
	struct returned r = {0};
	struct chunk *c;
	struct swr *w;
	int i;

	for (i = chain->n; i > from; i--) {
		c = &q->chunks[--q->ck_head & q->ck_mask];
		sendq_give_back(q, c, false, now, &r);
		if (c->last)
			sendq_work(q, 1);
		w = sendq_slot(q, chain->before[i - 1].wr_cut);
		w->cut = chain->before[i - 1].cut;
		w->sge_at = chain->before[i - 1].sge_at;
		w->sge_off = chain->before[i - 1].sge_off;
		w->started = chain->before[i - 1].started;
		chain->bytes -= c->length;
		chain->cut -= !c->last && !w->started;
	}
	q->wr_cut = cur->wr_cut;
	q->loose = cur->loose;
	q->loose_bytes = cur->loose_bytes;
	sendq_settle(q, &r, now);
}

static int index_of(const struct chain *chain, const struct ibv_send_wr *bad)
{
	int i;

	for (i = 0; i < chain->n; i++)
		if (&chain->wr[i] == bad)
			return i;
	return chain->n; /* the provider took them all and still complained */
}

/*
 * The provider will not take this WR, now or ever (it was checked as the provider checks; a limit
 * that rnice does not know was hit). The program has its 0 already, so the error becomes the
 * completion of that WR, and the QP stops as after any local error.
 */
COLD static void fail_qp(struct qp *q, int err)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	log_warn("QP 0x%x: the provider refused a queued WR (%s)", q->ibv->qp_num, strerror(err));
	q->fail_status = IBV_WC_LOC_QP_OP_ERR;
	uar_modify(q, &attr, IBV_QP_STATE);
	complete_failed(q, now_ns());
}

static enum verdict post_chain(struct qp *q, struct chain *chain, enum verdict v, uint64_t now)
{
	struct ibv_send_wr *bad = NULL;
	int err, posted = chain->n;

	if (!chain->n)
		return v;
	if (chain->rooms)
		sub_relaxed(&q->scq->room, chain->rooms);
	sendq_work(q, chain->work);
	sendq_await(q, chain->n); /* whoever polls must see it */
	err = chain->recorded ? wr_post_chain(q, chain->wr, &bad)
			      : q->real_post(q->ibv, chain->wr, &bad);
	if (unlikely(err))
		posted = index_of(chain, bad);
	if (unlikely(posted < chain->n)) {
		take_back(q, chain, posted, now);
		v = NO_ROOM;
		if (err != (chain->recorded ? q->ctx->provider->wr_full : ENOMEM))
			fail_qp(q, err);
	}
	q->new_chunks += (uint32_t)posted;
	q->new_queued -= (int64_t)chain->bytes;
	if (chain->cut)
		rnice_port_count(q->ctx->dev->port, RNICE_CTR_CUT_WRS, chain->cut);
	return v;
}

/* At most until @quantum bytes went. q->lock held */
static enum verdict issue(struct qp *q, uint64_t quantum, bool force, uint64_t now)
{
	struct chain chain;
	enum verdict v;

	if (q->failed)
		return ALL_SENT; /* what is left will be flushed */
	if (load_relaxed(&q->dying))
		return NO_ROOM;
	if (q->batch && wr_in_region(q, now))
		return NO_ROOM;
	chain.n = 0;
	chain.rooms = 0;
	chain.work = 0;
	chain.cut = 0;
	chain.bytes = 0;
	chain.left = quantum;
	chain.credit = 0;
	chain.shut = false;
	chain.force = force;
	chain.now = now;
	v = build(q, &chain);
	if (unlikely(chain.credit))
		rnice_port_done(q->ctx->dev->port, chain.credit, false, now);
	return post_chain(q, &chain, v, now);
}

/* ---- turns ---- */

/* pump_lock held. One round over the list; true if something moved and more is waiting. */
static bool one_round(struct dev *dev, uint64_t now)
{
	int turns = atomic_load(&dev->waiting);
	uint64_t quantum = turns > 1 ? rnice_port_chunk(dev->port) : UINT64_MAX;
	enum verdict v;
	bool moved = false;
	uint64_t before;
	struct qp *q;

	while (turns-- > 0 && (q = pop(dev))) {
		pthread_mutex_lock(&q->lock);
		before = q->ck_head;
		v = issue(q, quantum, false, now);
		moved |= q->ck_head != before;
		if (v != ALL_SENT) /* if the window is shut, its turn comes first when it opens */
			enlist(dev, q, v == NO_WINDOW);
		sendq_count_queued(q);
		pthread_mutex_unlock(&q->lock);
		if (v == NO_WINDOW)
			return false;
	}
	return moved && atomic_load(&dev->waiting);
}

/* pump_lock held */
static void tell_backlog(struct dev *dev)
{
	bool any = atomic_load(&dev->waiting) > 0;

	if (any != dev->backlogged)
		rnice_port_backlog(dev->port, any, now_ns());
	dev->backlogged = any;
}

/* Whoever held pump_lock calls this after dropping it: no request for a round is lost. */
static void pump_asked(struct dev *dev)
{
	while (atomic_load(&dev->again) && !pthread_mutex_trylock(&dev->pump_lock)) {
		while (atomic_exchange(&dev->again, 0))
			while (one_round(dev, now_ns()))
				;
		tell_backlog(dev);
		pthread_mutex_unlock(&dev->pump_lock);
	}
}

void dev_pump(struct dev *dev)
{
	atomic_store(&dev->again, 1);
	pump_asked(dev);
}

/*
 * The time of a post. The clock is read for every CLOCK_EVERY-th chunk only, if this process is
 * alone on the device (nobody is kept waiting by a wrong time) and the QP has a signaled chunk in
 * the NIC: then dev->now is renewed by completions or, if none comes, by the progress thread, every
 * few ms. One clock per device, since the port is told by all of its threads.
 */
static uint64_t time_of_post(struct qp *q)
{
	struct dev *dev = q->ctx->dev;

	if (q->ck_head % CLOCK_EVERY && sendq_has_signaled(q) && rnice_port_alone(dev->port))
		return load_relaxed(&dev->now);
	return dev_now(dev);
}

/*
 * The queue of @q right into the NIC, past the list, if nobody waits there and nobody else pumps.
 * q->lock held, which is why pump_lock is only tried.
 */
static bool send_now(struct dev *dev, struct qp *q)
{
	enum verdict v;

	if (atomic_load(&dev->waiting) || pthread_mutex_trylock(&dev->pump_lock))
		return false;
	do
		v = issue(q, UINT64_MAX, false, time_of_post(q));
	while (v == MORE_TO_SEND && !atomic_load(&dev->waiting));
	if (v != ALL_SENT)
		enlist(dev, q, v == NO_WINDOW);
	tell_backlog(dev);
	pthread_mutex_unlock(&dev->pump_lock);
	return true;
}

void qp_unlock_and_send(struct qp *q)
{
	struct dev *dev = q->ctx->dev;
	bool sent = send_now(dev, q);

	sendq_count_queued(q);
	pthread_mutex_unlock(&q->lock);
	if (sent) {
		if (unlikely(atomic_load(&dev->again)))
			pump_asked(dev);
	} else {
		dev_enlist(dev, q);
		dev_pump(dev);
	}
}

/* Of @length bytes: would it be posted as it is, signaled if the program says so? */
static bool goes_whole(const struct qp *q, const struct ibv_send_wr *wr, uint64_t length)
{
	if (length > rnice_port_chunk(q->ctx->dev->port) &&
	    plan_cuttable(q->type, wr->opcode, shim.cfg.cut_imm))
		return false;
	return sendq_signals(q, wr) || !must_signal(q, length, load_relaxed(&q->scq->room));
}

/* Nothing is before it, and nothing keeps it out of the NIC, but perhaps the window. */
static bool has_way(const struct qp *q)
{
	return load_relaxed(&q->mode) == QP_MANAGED && q->wr_cut == q->wr_head &&
	       !atomic_load(&q->ctx->dev->waiting) && !q->batch &&
	       load_relaxed(&q->state) == IBV_QPS_RTS && !q->failed && !load_relaxed(&q->dying) &&
	       sendq_held(q) < q->max_wr && sendq_inside(q) < q->ck_max;
}

/* The slot and the chunk behind the heads, for a WR that is not captured. */
static struct chunk *fill_straight(struct qp *q, const struct ibv_send_wr *wr, uint64_t length)
{
	struct chunk *c = &q->chunks[q->ck_head & q->ck_mask];
	struct swr *w = sendq_slot(q, q->wr_head);

	w->wr.wr_id = wr->wr_id;
	w->length = length;
	w->signaled = sendq_signals(q, wr);
	w->reported = false;
	w->t0 = q->wr_head % RNICE_SAMPLE_EVERY ? 0 : now_ns();
	*c = (struct chunk){
		.bytes = w->signaled ? q->loose_bytes + length : 0,
		.length = length,
		.posted = time_of_post(q),
		.natives = q->nat_head,
		.last = true,
		.signaled = w->signaled,
	};
	return c;
}

/* What fill_straight() filled was posted. */
static void advance(struct qp *q, const struct chunk *c)
{
	count_loose(q, c);
	q->wr_head++;
	q->wr_cut++;
	q->ck_head++;
	q->new_wrs++;
	q->new_chunks++;
}

bool qp_send_straight(struct qp *q, const struct ibv_send_wr *wr, int *err)
{
	struct rnice_port *port = q->ctx->dev->port;
	struct ibv_send_wr one, *bad = NULL;
	const struct chunk *c;
	uint64_t length;
	bool shut;

	if (!has_way(q) || !sendq_sges_fit(q, wr))
		return false;
	length = plan_length(wr);
	if (!goes_whole(q, wr, length))
		return false;
	c = fill_straight(q, wr, length);
	if (c->bytes && !rnice_port_take_some(port, c->bytes, 1, c->posted, &shut))
		return false;
	one = *wr;
	one.wr_id = q->id_base + q->ck_head;
	one.next = NULL;
	sendq_work(q, c->signaled);
	sendq_await(q, 1);
	*err = q->real_post(q->ibv, &one, &bad);
	if (likely(!*err || bad != &one)) { /* it may take it and still complain: index_of() */
		advance(q, c);
		*err = 0;
		return true;
	}
	sendq_work(q, -(int64_t)c->signaled);
	sendq_await(q, -1);
	if (c->bytes)
		rnice_port_done(port, c->bytes, false, c->posted);
	return *err != ENOMEM;
}

/* More is in the real SQ than should be, and a completion will tell of less. */
static bool crowded(const struct qp *q, uint32_t more)
{
	return sendq_inside(q) + more > q->ck_max &&
	       (sendq_has_signaled(q) || q->sig_head != q->sig_done);
}

/*
 * q->lock held. Must it be tried again, before @more WRs may go past the queue? What a failed QP
 * has queued is flushed when the CQ is drained (complete_tail()), and comes first then, too.
 */
static bool in_the_way(const struct qp *q, uint32_t more)
{
	bool queued = q->wr_cut != q->wr_head;

	return q->failed ? queued && more : queued || crowded(q, more);
}

int qp_push_out(struct qp *q, uint32_t more)
{
	struct dev *dev = q->ctx->dev;
	uint64_t give_up = now_ns() + 5000000000ull;
	bool left = true;

	for (;;) {
		pthread_mutex_lock(&dev->pump_lock);
		pthread_mutex_lock(&q->lock);
		while (issue(q, UINT64_MAX, true, now_ns()) == MORE_TO_SEND)
			;
		sendq_count_queued(q);
		left = in_the_way(q, more);
		pthread_mutex_unlock(&q->lock);
		pthread_mutex_unlock(&dev->pump_lock);
		if (!left)
			return 0;
		if (now_ns() > give_up)
			return ETIMEDOUT;
		pthread_mutex_lock(&q->scq->lock);
		cq_drain(q->scq, UINT32_MAX);
		pthread_mutex_unlock(&q->scq->lock);
		sched_yield();
	}
}
