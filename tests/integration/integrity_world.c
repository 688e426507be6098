/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RED_ZONE 4096

/* ---- areas ---- */

static void area_open(struct area *a, struct vu_dev *d, size_t len, int access, uint64_t seed)
{
	void *p;

	a->len = (len + 2 * RED_ZONE + 4095) & ~(size_t)4095;
	if (posix_memalign(&p, 4096, a->len))
		vu_die("out of memory");
	a->live = p;
	a->model = malloc(a->len);
	vu_check(a->model, "out of memory");
	vu_fill(a->live, a->len, seed);
	memcpy(a->model, a->live, a->len);
	a->mr = vu_reg(d, a->live, a->len, access);
}

static void area_close(struct area *a)
{
	vu_check(!ibv_dereg_mr(a->mr), "ibv_dereg_mr: %s", strerror(errno));
	free(a->live);
	free(a->model);
}

/* A UC sender has its completion before the bytes are there: give them time. */
static bool area_equal(const struct area *a, bool late)
{
	double end = vu_now() + 5;

	while (memcmp(a->live, a->model, a->len))
		if (!late || vu_now() > end)
			return false;
	return true;
}

void area_check(const struct area *a, const char *what, const struct end *e)
{
	size_t i = 0, last = a->len - 1;

	if (area_equal(a, e->q.qp->qp_type == IBV_QPT_UC))
		return;
	while (i < last && a->live[i] == a->model[i])
		i++;
	while (last > i && a->live[last] == a->model[last])
		last--;
	vu_die("%s area of pair %u: bytes %zu to %zu of %zu differ from the model "
	       "(first: %02x instead of %02x)",
	       what, e->pair, i, last, a->len, a->live[i], a->model[i]);
}

/* ---- the plan of a round ---- */

static unsigned int one_of(struct vu_rng *r, const unsigned int *v, size_t n)
{
	return v[vu_below(r, n)];
}

static unsigned int draw_queue(struct vu_rng *r)
{
	static const unsigned int sizes[] = {1, 2, 3, 4, 7, 16, 64, 128};

	return one_of(r, sizes, VU_ARRAY(sizes));
}

static uint32_t draw_recv_len(const struct plan *p, struct vu_rng *r, uint32_t mtu)
{
	static const unsigned int sizes[] = {64, 4096, 65536, 4u << 20};
	uint32_t len = one_of(r, sizes, VU_ARRAY(sizes));

	if (p->type == IBV_QPT_UD)
		return len < mtu ? len : mtu;
	return len < p->max_len ? len : p->max_len;
}

static void draw_sizes(struct plan *p, struct vu_rng *r, const struct vu_dev *d)
{
	static const unsigned int sges[] = {1, 2, 3, 5, 8, MAX_SGE};
	static const unsigned int inlines[] = {0, 16, 64, 220};
	unsigned int top = d->attr.max_sge < MAX_SGE ? (unsigned int)d->attr.max_sge : MAX_SGE;

	p->sge = one_of(r, sges, VU_ARRAY(sges));
	if (p->sge > top)
		p->sge = top;
	p->recv_sge = p->sge;
	if (p->srq && p->recv_sge > (unsigned int)d->attr.max_srq_sge)
		p->recv_sge = (unsigned int)d->attr.max_srq_sge;
	p->inline_data = one_of(r, inlines, VU_ARRAY(inlines));
	p->max_len = (uint32_t)settings.max_size;
	if (p->pairs > 2 && p->max_len > 256 << 10)
		p->max_len = 256 << 10;
	p->recv_len = draw_recv_len(p, r, vu_mtu(d));
	if (p->recv_len > 65536 && p->recv_wr > 4)
		p->recv_wr = 4;
}

static void draw_plan(struct plan *p, struct vu_rng *r, const struct vu_dev *d)
{
	struct vu_link link = vu_link_default(d);

	memset(p, 0, sizeof(*p));
	p->type = settings.type;
	p->pairs = (unsigned int)vu_range(r, 1, MAX_PAIR);
	p->send_wr = draw_queue(r);
	p->recv_wr = draw_queue(r);
	p->chain = (unsigned int)vu_range(r, 1, 8);
	p->unsignaled = (unsigned int)vu_range(r, 0, 4) * 25;
	p->cqe = (int)(vu_chance(r, 30) ? vu_range(r, 1, 3) : 1u << vu_range(r, 2, 8));
	p->layout = (enum layout)vu_below(r, LAYOUT_COUNT);
	p->ids = (enum id_kind)vu_below(r, ID_COUNT);
	p->srq = vu_chance(r, 25);
	p->events = vu_chance(r, 40) && !settings.no_events;
	p->reads = vu_chance(r, 75) && p->type == IBV_QPT_RC;
	p->windows = vu_chance(r, 40) && p->type == IBV_QPT_RC && !settings.no_windows &&
		     p->send_wr > 1 && p->cqe > 1 &&
		     (d->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	p->both_ways = vu_chance(r, 60);
	p->rd_atomic = vu_chance(r, 30) ? 1 : link.rd_atomic;
	draw_sizes(p, r, d);
}

static void print_plan(const struct plan *p, unsigned int round)
{
	vu_log("round %u: pairs %u sq %u rq %u%s sge %u inline %u cqe %d layout %d ids %d chain %u "
	       "unsignaled %u%%%s%s%s%s rd %u len %u recv %u\n",
	       round, p->pairs, p->send_wr, p->recv_wr, p->srq ? " srq" : "", p->sge,
	       p->inline_data, p->cqe, (int)p->layout, (int)p->ids, p->chain, p->unsignaled,
	       p->events ? " events" : "", p->reads ? " reads" : "", p->windows ? " windows" : "",
	       p->both_ways ? " both-ways" : "", p->rd_atomic, p->max_len, p->recv_len);
}

/* ---- sides ---- */

static void open_source(struct side *s, const struct plan *p, uint64_t seed)
{
	size_t len = p->max_len + (1u << 20), part;
	struct area *a = &s->source;

	area_open(a, &s->dev, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, seed);
	part = a->len / SRC_PARTS;
	for (size_t i = 0; i < SRC_PARTS; i++)
		s->part[i] = vu_reg(&s->dev, a->live + i * part, part, 0);
}

static void open_slots(struct side *s, const struct plan *p, uint64_t seed)
{
	size_t room = (p->recv_len + UD_GRH + 16 * MAX_SGE + 63) & ~(size_t)63;

	s->nslot = p->srq ? p->recv_wr : p->recv_wr * p->pairs;
	s->slot = vu_alloc(s->nslot * sizeof(*s->slot));
	area_open(&s->recv, &s->dev, room * s->nslot, IBV_ACCESS_LOCAL_WRITE, seed);
	s->slot_room = room;
	for (unsigned int i = 0; i < s->nslot; i++)
		s->slot[i].off = RED_ZONE + i * room;
}

static void open_srq(struct side *s, const struct plan *p)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = p->recv_wr, .max_sge = p->recv_sge}};

	if (!p->srq)
		return;
	s->srq = ibv_create_srq(s->dev.pd, &attr);
	vu_check(s->srq, "ibv_create_srq: %s", strerror(errno));
}

static struct box *open_box(struct side *s, const struct plan *p)
{
	struct ibv_comp_channel *channel = NULL;
	struct box *b = &s->box[s->nbox++];

	if (p->events) {
		channel = ibv_create_comp_channel(s->dev.ctx);
		vu_check(channel, "ibv_create_comp_channel: %s", strerror(errno));
	}
	b->side = s;
	vu_cq_create(&b->cq, &s->dev, p->cqe, channel, settings.poll, b);
	return b;
}

static void close_box(struct box *b)
{
	struct ibv_comp_channel *channel = b->cq.channel;

	vu_cq_destroy(&b->cq);
	if (channel)
		vu_check(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel: %s",
			 strerror(errno));
}

static void choose_boxes(struct side *s, struct end *e, const struct plan *p)
{
	if (p->layout == LAYOUT_PER_QP || !s->nbox) {
		e->scq = open_box(s, p);
		e->rcq = p->layout == LAYOUT_ONE_CQ ? e->scq : open_box(s, p);
	} else {
		e->scq = s->end[0].scq;
		e->rcq = s->end[0].rcq;
	}
}

/* ---- ends ---- */

static void open_areas(struct end *e, const struct plan *p, uint64_t seed)
{
	size_t data = p->max_len + p->max_len / 2 + 65536;
	int access = VU_ACCESS | (p->windows ? IBV_ACCESS_MW_BIND : 0);

	area_open(&e->target, &e->side->dev, TARGET_DATA + data, access, seed);
	area_open(&e->sink, &e->side->dev, data, IBV_ACCESS_LOCAL_WRITE, seed + 1);
}

static void open_window(struct end *e, const struct plan *p)
{
	if (!p->windows)
		return;
	e->win.mw = ibv_alloc_mw(e->side->dev.pd, IBV_MW_TYPE_2);
	vu_check(e->win.mw, "ibv_alloc_mw: %s", strerror(errno));
	e->win.rkey = e->win.mw->rkey;
}

static void open_end(struct world *w, struct side *s, unsigned int pair, uint64_t seed)
{
	const struct plan *p = &w->plan;
	struct end *e = &s->end[pair];
	struct ibv_qp_init_attr init = {.qp_context = e,
					.srq = s->srq,
					.cap = {.max_send_wr = p->send_wr,
						.max_recv_wr = p->srq ? 0 : p->recv_wr,
						.max_send_sge = p->sge,
						.max_recv_sge = p->srq ? 0 : p->recv_sge,
						.max_inline_data = p->inline_data},
					.qp_type = p->type,
					.sq_sig_all = !p->unsignaled};

	e->side = s;
	e->pair = pair;
	e->sig_all = init.sq_sig_all;
	STAILQ_INIT(&e->ops);
	STAILQ_INIT(&e->inbox);
	choose_boxes(s, e, p);
	init.send_cq = e->scq->cq.cq;
	init.recv_cq = e->rcq->cq.cq;
	vu_qp_create(&e->q, &s->dev, &init, settings.api);
	vu_check(e->q.qp->qp_context == e && e->q.qp->pd == s->dev.pd &&
			 e->q.qp->send_cq == init.send_cq && e->q.qp->recv_cq == init.recv_cq &&
			 e->q.qp->srq == init.srq && e->q.qp->qp_type == p->type,
		 "the QP's public fields are not what it was created with");
	e->sq_cap = p->send_wr < e->q.cap.max_send_wr ? p->send_wr : e->q.cap.max_send_wr;
	e->rq_cap = p->recv_wr;
	e->rq = vu_alloc(e->rq_cap * sizeof(*e->rq));
	open_areas(e, p, seed);
	open_window(e, p);
}

static void close_end(struct end *e)
{
	if (e->ah)
		vu_check(!ibv_destroy_ah(e->ah), "ibv_destroy_ah");
	if (e->win.mw)
		vu_check(!ibv_dealloc_mw(e->win.mw), "ibv_dealloc_mw: %s", strerror(errno));
	vu_qp_destroy(&e->q);
	area_close(&e->target);
	area_close(&e->sink);
	free(e->rq);
}

static void connect_pair(struct world *w, unsigned int i)
{
	struct side *a = &w->side[0], *b = &w->side[1];
	struct end *ea = &a->end[i], *eb = &b->end[i];
	struct vu_link link = vu_link_default(&a->dev);
	struct vu_addr aa = vu_addr_of(&a->dev, ea->q.qp), ab = vu_addr_of(&b->dev, eb->q.qp);

	link.rd_atomic = (uint8_t)w->plan.rd_atomic;
	ea->peer = eb;
	eb->peer = ea;
	vu_connect(&a->dev, ea->q.qp, &b->dev, eb->q.qp, &link);
	if (w->plan.type == IBV_QPT_UD) {
		ea->ah = vu_ah(&a->dev, &ab);
		eb->ah = vu_ah(&b->dev, &aa);
	}
}

void world_open(struct world *w, unsigned int round)
{
	uint64_t seed = vu.seed * 1000003 + round;

	memset(w, 0, sizeof(*w));
	w->rng.state = seed;
	w->poll_rng.state = ~seed;
	vu_dev_open(&w->side[0].dev, vu.dev);
	vu_dev_open(&w->side[1].dev, vu.peer_dev);
	draw_plan(&w->plan, &w->rng, &w->side[0].dev);
	print_plan(&w->plan, round);
	for (unsigned int i = 0; i < 2; i++) {
		open_source(&w->side[i], &w->plan, seed * 8 + i);
		open_slots(&w->side[i], &w->plan, seed * 8 + 2 + i);
		open_srq(&w->side[i], &w->plan);
		for (unsigned int k = 0; k < w->plan.pairs; k++)
			open_end(w, &w->side[i], k, seed * 8 + 4 + 2 * (2 * k + i));
	}
	for (unsigned int k = 0; k < w->plan.pairs; k++)
		connect_pair(w, k);
}

static void close_side(struct side *s, unsigned int pairs)
{
	for (unsigned int i = 0; i < pairs; i++)
		close_end(&s->end[i]);
	for (unsigned int i = 0; i < s->nbox; i++)
		close_box(&s->box[i]);
	if (s->srq)
		vu_check(!ibv_destroy_srq(s->srq), "ibv_destroy_srq: %s", strerror(errno));
	for (unsigned int i = 0; i < SRC_PARTS; i++)
		vu_check(!ibv_dereg_mr(s->part[i]), "ibv_dereg_mr: %s", strerror(errno));
	area_close(&s->source);
	area_close(&s->recv);
	free(s->slot);
	vu_dev_close(&s->dev);
}

void world_close(struct world *w)
{
	close_side(&w->side[0], w->plan.pairs);
	close_side(&w->side[1], w->plan.pairs);
}

struct end *world_end(struct side *s, uint32_t qp_num)
{
	for (unsigned int i = 0; i < MAX_PAIR; i++)
		if (s->end[i].q.qp && s->end[i].q.qp->qp_num == qp_num)
			return &s->end[i];
	return NULL;
}

static void print_end(const struct end *e, char name)
{
	unsigned int posted = 0, arrived = 0, inbox = 0, got = 0;
	const struct op *op, *oldest = NULL;
	const struct msg *m;

	STAILQ_FOREACH(op, &e->ops, link)
	{
		posted++;
		arrived += op->arrived;
		if (!oldest && !op->arrived)
			oldest = op;
	}
	STAILQ_FOREACH(m, &e->inbox, link)
	{
		inbox++;
		got += m->arrived;
	}
	fprintf(stderr,
		"  pair %u%c: %u posted (%u completed), %u messages (%u received), state %d",
		e->pair, name, posted, arrived, inbox, got, (int)vu_qp_state(e->q.qp));
	if (oldest)
		fprintf(stderr, "; oldest %s of %u bytes, serial %" PRIu64 "%s",
			vu_opcode_name(oldest->wr.opcode), oldest->len, oldest->serial,
			oldest->signaled ? "" : ", unsignaled");
	fputc('\n', stderr);
}

void world_print(const struct world *w)
{
	for (unsigned int i = 0; i < w->plan.pairs; i++) {
		print_end(&w->side[0].end[i], 'a');
		print_end(&w->side[1].end[i], 'b');
	}
}
