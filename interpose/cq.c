/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues. In a process that may manage QPs, every CQ gets a soft queue in front of it
 * and hidden spare capacity, and is polled under a lock from its first day: nothing then has to
 * switch while completions fly. In all other processes polling costs one look-up (fast.h).
 */
#include "interpose/fast.h"
#include "interpose/shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the soft queue; cq->lock held ---- */

int cq_ring_resize(struct cq *cq, uint32_t entries)
{
	uint32_t size = 64, i, n = cq_ring_count(cq);
	struct wc_more *more = NULL;
	struct ibv_wc *ring;

	while (size < entries)
		size *= 2;
	if (cq->ring && size <= cq->mask + 1)
		return 0;
	ring = malloc(size * sizeof(*ring));
	if (cq->ex)
		more = malloc(size * sizeof(*more));
	if (!ring || (cq->ex && !more)) {
		free(ring);
		free(more);
		return ENOMEM;
	}
	for (i = 0; i < n; i++) {
		ring[i] = cq->ring[(cq->head + i) & cq->mask];
		if (more)
			more[i] = cq->more[(cq->head + i) & cq->mask];
	}
	free(cq->ring);
	free(cq->more);
	cq->ring = ring;
	cq->more = more;
	cq->mask = size - 1;
	cq->head = 0;
	cq->tail = n;
	return 0;
}

/*
 * Draining stops at cq->asked, and cq->reserved entries are kept for flushes, so the ring is large
 * enough for all programs that poll as verbs demands. It grows for the others.
 */
void cq_push(struct cq *cq, const struct ibv_wc *wc)
{
	if (unlikely(cq_ring_count(cq) > cq->mask) && cq_ring_resize(cq, (cq->mask + 1) * 2)) {
		log_error("out of memory: a completion of CQ %p is lost", (void *)cq->ibv);
		return;
	}
	cq->ring[cq->tail & cq->mask] = *wc;
	if (cq->more)
		cqex_stash(cq, cq->tail & cq->mask);
	cq->tail++;
	channel_seen(cq, wc);
}

static int ring_pop(struct cq *cq, int n, struct ibv_wc *wc)
{
	int i;

	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->ring[cq->head++ & cq->mask];
	return i;
}

int cq_reserve(struct cq *cq, uint32_t entries)
{
	int err =
		cq_ring_resize(cq, (uint32_t)cq->asked + RNICE_POLL_BATCH + cq->reserved + entries);

	if (!err)
		cq->reserved += entries;
	return err;
}

void cq_unreserve(struct cq *cq, uint32_t entries)
{
	cq->reserved -= entries;
}

void cq_forget_qp(struct cq *cq, uint32_t qp_num)
{
	uint32_t from, to = cq->head;

	for (from = cq->head; from != cq->tail; from++) {
		if (cq->ring[from & cq->mask].qp_num == qp_num)
			continue;
		cq->ring[to & cq->mask] = cq->ring[from & cq->mask];
		if (cq->more)
			cq->more[to & cq->mask] = cq->more[from & cq->mask];
		to++;
	}
	cq->tail = to;
}

/* ---- polling ---- */

/* QPs that failed and may have nothing left in the NIC that would tell. */
static void flush_failed(struct cq *cq)
{
	uint64_t now = now_ns();
	struct qp *q;

	for (q = cq->qps; q; q = q->cq_next) {
		pthread_mutex_lock(&q->lock);
		complete_tail(q, now);
		pthread_mutex_unlock(&q->lock);
	}
}

static void sort_wcs(struct cq *cq, const struct ibv_wc *wc, int n)
{
	struct run run = {.cq = cq, .now = dev_now(cq->ctx->dev)};
	int i;

	for (i = 0; i < n; i++)
		complete_wc(&run, &wc[i]);
	complete_end(&run);
}

static int drain_batch(struct cq *cq)
{
	int n = cq->real_poll(cq->ibv, RNICE_POLL_BATCH, cq->taken);

	if (n > 0) {
		sort_wcs(cq, cq->taken, n);
		memset(cq->taken, 0, (size_t)n * sizeof(*cq->taken));
	}
	return n;
}

static int drain(struct cq *cq, uint32_t max, bool now)
{
	bool paced = rnice_port_paced(cq->ctx->dev->port);
	uint64_t at = 0;
	uint32_t sum = 0;
	int n = 0;

	if (unlikely(load_relaxed(&cq->flush_wanted)) && atomic_exchange(&cq->flush_wanted, false))
		flush_failed(cq);
	/* Not ours to read, unless something of ours was still under way at that time. */
	if (unlikely(load_relaxed(&cq->handed_out)) && !atomic_load(&cq->awaiting))
		return 0;
	while (sum < max && cq_ring_count(cq) < (uint32_t)cq->asked) {
		at = unlikely(paced) ? now_ns() : 0;
		n = cq->ex ? cqex_drain(cq, now) : drain_batch(cq);
		if (n <= 0)
			break;
		sum += (uint32_t)n;
		if (n < RNICE_POLL_BATCH)
			break;
	}
	if (at && n >= 0 && n < RNICE_POLL_BATCH)
		cq->looked = at;
	return (int)sum;
}

int cq_drain(struct cq *cq, uint32_t max)
{
	return drain(cq, max, false);
}

void cq_drain_all(struct cq *cq)
{
	drain(cq, UINT32_MAX, true);
}

/*
 * Nothing of ours is in the NIC behind this CQ: the program's array takes the completions directly.
 * A chunk may have been issued (and completed) between the test and the poll, so look again.
 */
static int poll_direct(struct cq *cq, int n, struct ibv_wc *wc)
{
	int i, got = cq->real_poll(cq->ibv, n, wc);

	if (got <= 0)
		return got;
	if (unlikely(atomic_load(&cq->awaiting))) {
		sort_wcs(cq, wc, got);
		return ring_pop(cq, n, wc);
	}
	for (i = 0; i < got; i++)
		channel_seen(cq, &wc[i]);
	return got;
}

static int poll_locked(struct cq *cq, int n, struct ibv_wc *wc)
{
	int got = ring_pop(cq, n, wc), more;

	if (got == n)
		return got;
	if (!cq->ex && !atomic_load(&cq->awaiting) && !load_relaxed(&cq->flush_wanted)) {
		more = poll_direct(cq, n - got, wc + got);
		return more < 0 ? (got ? got : more) : got + more;
	}
	do {
		more = cq_drain(cq, RNICE_POLL_BATCH);
		got += ring_pop(cq, n - got, wc + got);
	} while (got < n && more == RNICE_POLL_BATCH);
	return got;
}

void cq_sampled(struct cq *cq, enum ibv_wc_status status)
{
	uint64_t t0 = load_relaxed(&cq->sample_t0);

	store_relaxed(&cq->slow, false);
	if (status == IBV_WC_SUCCESS)
		rnice_port_latency(cq->ctx->dev->port, now_ns() - t0);
}

/* The program waits for the end of a timed send: see whether it is among these. */
static int poll_sampling(struct cq *cq, int n, struct ibv_wc *wc)
{
	int i, got = cq->real_poll(cq->ibv, n, wc);

	for (i = 0; i < got; i++)
		if (wc[i].wr_id == load_relaxed(&cq->sample_wr_id) &&
		    wc[i].qp_num == load_relaxed(&cq->sample_qpn) &&
		    !(wc[i].opcode & IBV_WC_RECV)) {
			cq_sampled(cq, wc[i].status);
			break;
		}
	return got;
}

static int poll_managed(struct cq *cq, int n, struct ibv_wc *wc)
{
	struct dev *dev = cq->ctx->dev;
	int got;

	if (cq->ex)
		cqex_enter(cq);
	pthread_mutex_lock(&cq->lock);
	store_relaxed(&cq->polls, load_relaxed(&cq->polls) + 1);
	got = poll_locked(cq, n, wc);
	pthread_mutex_unlock(&cq->lock);
	if (cq->ex)
		cqex_leave(cq);
	if (load_relaxed(&dev->waiting))
		dev_pump(dev);
	return got;
}

/* Everything but an unmanaged CQ found at first sight with no timed send under way. */
static __attribute__((noinline)) int poll_slow(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct cq *cq = table_near(&shim.cqs, table_ptr_key(ibv));

	if (!cq)
		return ctx_of(ibv->context)->ops.poll_cq(ibv, n, wc);
	if (cq->managed)
		return poll_managed(cq, n, wc);
	if (load_relaxed(&cq->slow))
		return poll_sampling(cq, n, wc);
	/* A timed send that starts right here is not seen to end: one sample less. */
	fast_put(fast_cqs, ibv, (struct fast){.fn = (void *)cq->real_poll});
	return cq->real_poll(ibv, n, wc);
}

int hook_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	const struct fast *f = fast_look(fast_cqs, ibv);
	int (*poll)(struct ibv_cq *, int, struct ibv_wc *);

	if (unlikely(!f))
		return poll_slow(ibv, n, wc);
	poll = f->fn;
	return poll(ibv, n, wc);
}

int hook_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct ctx *ctx = ctx_of(ibv->context);
	struct cq *cq = cq_of(ibv);

	if (!cq || !cq->ch)
		return ctx->ops.req_notify_cq(ibv, solicited_only);
	return channel_arm_for_program(cq, solicited_only);
}

/* ---- create and destroy ---- */

/* The state of a CQ to be; it goes into the tables only when the CQ exists. */
static struct cq *new_cq(struct ctx *ctx, struct ibv_comp_channel *pub, int cqe)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->ctx = ctx;
	cq->real_poll = ctx->ops.poll_cq;
	cq->asked = cqe;
	pthread_mutex_init(&cq->lock, NULL);
	if (shim.managing)
		cq->ch = channel_of(pub);
	return cq;
}

/* Everything a managed CQ needs, if this is one. */
static void equip(struct cq *cq, struct ibv_comp_channel *pub)
{
	if (!shim.managing || (pub && !cq->ch))
		return;
	if (!pub)
		cq->ch = channel_hidden(cq->ctx);
	cq->managed = cq->ch && !cq_ring_resize(cq, (uint32_t)cq->asked + RNICE_POLL_BATCH);
}

static void free_cq(struct cq *cq, bool abandoned)
{
	cqex_free(cq, abandoned);
	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq->more);
	free(cq);
}

/* registry held */
static void unpublish(struct cq *cq)
{
	struct cq **p;

	fast_del(fast_cqs, cq->ibv);
	table_del(&shim.cqs, table_ptr_key(cq->ibv), cq);
	for (p = &cq->ctx->cqs; *p; p = &(*p)->ctx_next)
		if (*p == cq) {
			*p = cq->ctx_next;
			break;
		}
	for (p = &shim.all_cqs; *p; p = &(*p)->next)
		if (*p == cq) {
			*p = cq->next;
			break;
		}
}

/* registry held; 0 or ENOMEM */
static int publish(struct cq *cq)
{
	if (table_put(&shim.cqs, table_ptr_key(cq->ibv), cq))
		return ENOMEM;
	cq->ctx_next = cq->ctx->cqs;
	cq->ctx->cqs = cq;
	if (cq->managed) {
		cq->next = shim.all_cqs;
		shim.all_cqs = cq;
	}
	return 0;
}

void cq_hand_out(struct cq *cq)
{
	struct qp *q;

	store_relaxed(&cq->handed_out, true);
	for (q = cq->qps; q; q = q->cq_next) /* changes under registry only */
		qp_hand_out(q);
}

void cq_abandon(struct cq *cq)
{
	unpublish(cq);
	free_cq(cq, true);
}

int cq_spare(const struct cq *cq, int cqe)
{
	int spare = cqe < RNICE_CQ_SPARE_MIN ? RNICE_CQ_SPARE_MIN
		    : cqe > RNICE_CQ_SPARE   ? RNICE_CQ_SPARE
					     : cqe;

	return cq->managed && cqe > 0 && cqe <= cq->ctx->max_cqe - spare ? spare : 0;
}

/* registry held; NULL with errno */
static struct ibv_cq *create(struct cq *cq, void *cq_context, struct ibv_comp_channel *pub,
			     int vector)
{
	struct ibv_comp_channel *channel = cq->ch ? &cq->ch->real : pub;
	struct ibv_context *context = cq->ctx->ibv;
	int spare = cq_spare(cq, cq->asked);
	struct ibv_cq *ibv;

	ibv = real()->ibv_create_cq(context, cq->asked + spare, cq_context, channel, vector);
	if (!ibv && spare) {
		spare = 0;
		ibv = real()->ibv_create_cq(context, cq->asked, cq_context, channel, vector);
	}
	cq->spare = spare;
	store_relaxed(&cq->room, spare);
	return ibv;
}

/*
 * No memory to keep the books of a CQ: natively it works all the same, except on a channel that is
 * ours, where nobody would hand its events on. registry held
 */
static bool can_be_plain(struct ibv_comp_channel *pub)
{
	if (channel_of(pub)) {
		errno = ENOMEM;
		return false;
	}
	log_warn("a CQ runs unscheduled: out of memory");
	return true;
}

/* registry held. The CQ @ibv exists; NULL: it had to be destroyed again. */
static struct ibv_cq *finish(struct cq *cq, struct ibv_cq *ibv, struct ibv_comp_channel *pub)
{
	bool plain;

	cq->ibv = ibv;
	store_relaxed(&cq->slow, cq->managed);
	if (cq->ch)
		channel_adopt(cq->ch, ibv);
	if (!publish(cq)) {
		if (cq->managed && shim.cfg.cls == RNICE_CLASS_BULK)
			channel_take(cq->ch);
		return ibv;
	}
	plain = can_be_plain(pub);
	if (!plain)
		real()->ibv_destroy_cq(ibv);
	free_cq(cq, plain);
	return plain ? ibv : NULL;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	struct ctx *ctx = ctx_of(context);
	struct ibv_cq *ibv = NULL;
	struct cq *cq;

	if (!ctx)
		return real()->ibv_create_cq(context, cqe, cq_context, channel, vector);
	pthread_mutex_lock(&shim.registry);
	cq = new_cq(ctx, channel, cqe);
	if (cq)
		equip(cq, channel);
	if (cq)
		ibv = create(cq, cq_context, channel, vector);
	else if (can_be_plain(channel))
		ibv = real()->ibv_create_cq(context, cqe, cq_context, channel, vector);
	if (cq && ibv)
		ibv = finish(cq, ibv, channel);
	else if (cq)
		free_cq(cq, false);
	pthread_mutex_unlock(&shim.registry);
	return ibv;
}

/* As new_cq() and equip() for an extended one. */
static struct cq *new_extended(struct ctx *ctx, const struct ibv_cq_init_attr_ex *attr, bool opaque)
{
	struct cq *cq = new_cq(ctx, attr->channel, (int)attr->cqe);

	if (!cq)
		return NULL;
	cq->ex = cqex_new(cq, attr);
	if (!cq->ex) {
		free_cq(cq, false);
		return NULL;
	}
	if (!opaque && cqex_can_keep(attr))
		equip(cq, attr->channel);
	return cq;
}

struct ibv_cq_ex *cq_create_extended(struct ctx *ctx, struct ibv_cq_init_attr_ex *attr, bool opaque,
				     struct ibv_cq_ex *(*make)(void *), void *arg)
{
	struct ibv_comp_channel *channel = attr->channel;
	struct ibv_cq_ex *ex = NULL;
	struct cq *cq;

	pthread_mutex_lock(&shim.registry);
	cq = new_extended(ctx, attr, opaque);
	if (cq && cq->ch)
		attr->channel = &cq->ch->real; /* in place: its size grows with rdma-core */
	if (cq)
		ex = cqex_create(cq, attr, make, arg);
	else if (can_be_plain(channel))
		ex = make(arg);
	attr->channel = channel;
	if (cq && !ex)
		free_cq(cq, false);
	else if (cq && !finish(cq, ibv_cq_ex_to_cq(ex), channel))
		ex = NULL;
	pthread_mutex_unlock(&shim.registry);
	return ex;
}

struct create_cq_ex_call {
	struct ctx *ctx;
	struct ibv_cq_init_attr_ex *attr;
};

static struct ibv_cq_ex *call_create_cq_ex(void *arg)
{
	struct create_cq_ex_call *c = arg;

	return c->ctx->create_cq_ex(c->ctx->ibv, c->attr);
}

struct ibv_cq_ex *hook_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct create_cq_ex_call call = {.ctx = ctx_of(context), .attr = attr};

	return cq_create_extended(call.ctx, attr, false, call_create_cq_ex, &call);
}

/*
 * As the kernel does it, a busy CQ says EBUSY at once, and a CQ whose events the program fetched is
 * not gone before they are acked.
 */
EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct cq *cq = cq_of(ibv);
	uint32_t undelivered = 0;
	int err;

	if (!cq)
		return real()->ibv_destroy_cq(ibv);
	if (cq->ch && !load_relaxed(&cq->users))
		undelivered = channel_mute(cq);
	/* No CQ is made at this address before the registry is free again. */
	pthread_mutex_lock(&shim.registry);
	err = real()->ibv_destroy_cq(ibv);
	if (!err)
		unpublish(cq);
	else if (cq->ch)
		channel_unmute(cq, undelivered);
	pthread_mutex_unlock(&shim.registry);
	if (!err)
		free_cq(cq, false);
	return err;
}
