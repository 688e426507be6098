/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The software send queue of one managed QP: a ring of captured WRs and a ring of what went to the
 * NIC. Both are allocated with the QP; nothing is allocated while it sends.
 */
#include "interpose/shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint32_t pow2_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/* Chunks are told from the program's own wr_ids by this secret; see complete.c. */
static uint64_t random_base(const struct qp *q)
{
	uint64_t r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = now_ns() * 0x9e3779b97f4a7c15ULL ^ (uint64_t)(uintptr_t)q;
	return r;
}

static size_t slot_sge_bytes(const struct qp *q)
{
	return sendq_sge_places(q) * sizeof(struct ibv_sge);
}

int sendq_init(struct qp *q, const struct ibv_qp_cap *cap, uint32_t real_depth)
{
	uint32_t wrs = pow2_at_least(q->max_wr ? q->max_wr : 1);
	uint32_t cks = pow2_at_least(real_depth ? real_depth : 1);
	/* The provider frees a place when it is polled, we when we sort: a batch may lie between.
	 */
	uint32_t nats = pow2_at_least(real_depth + RNICE_POLL_BATCH);
	bool counts = q->batch || q->hide_depth;

	q->max_sge = cap->max_send_sge;
	q->max_inline = cap->max_inline_data;
	q->stride = (sizeof(struct swr) + slot_sge_bytes(q) + q->max_inline + 63) & ~(size_t)63;
	q->slots = calloc(wrs, q->stride);
	q->chunks = calloc(cks, sizeof(*q->chunks));
	q->chain_sges = calloc(RNICE_CHAIN, slot_sge_bytes(q));
	if (counts)
		q->nat_upto = calloc(nats, sizeof(*q->nat_upto));
	if (!q->slots || !q->chunks || !q->chain_sges || (counts && !q->nat_upto)) {
		sendq_free(q);
		return ENOMEM;
	}
	q->wr_mask = wrs - 1;
	q->ck_mask = cks - 1;
	q->nat_mask = nats - 1;
	q->ck_max = real_depth;
	q->id_base = random_base(q);
	return 0;
}

void sendq_free(struct qp *q)
{
	free(q->slots);
	free(q->chunks);
	free(q->chain_sges);
	free(q->nat_upto);
	q->nat_upto = NULL;
	q->slots = NULL;
	q->chunks = NULL;
	q->chain_sges = NULL;
}

char *sendq_payload(const struct qp *q, struct swr *w)
{
	return (char *)(w + 1) + slot_sge_bytes(q);
}

static bool inline_payload(const struct ibv_send_wr *wr)
{
	return wr->send_flags & IBV_SEND_INLINE && wr->opcode != IBV_WR_RDMA_READ;
}

/* The payload of an inline WR belongs to the program again when post returns: copy it. */
static void copy_inline(struct qp *q, struct swr *w, const struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = sendq_sges(w);
	char *to = sendq_payload(q, w);
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		sge[i].addr = (uintptr_t)to;
		to += wr->sg_list[i].length;
	}
}

/* 0, or what the provider itself would return for it. */
static int check(const struct qp *q, const struct ibv_send_wr *wr, uint64_t length)
{
	const struct provider *p = q->ctx->provider;
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (inline_payload(wr) && length > q->max_inline)
		return p->invalid;
	if (atomic && p->checks_atomics && (length < 8 || wr->wr.atomic.remote_addr & 7))
		return EINVAL;
	return 0;
}

void sendq_commit(struct qp *q, uint32_t n)
{
	struct swr *w;
	uint32_t i;

	for (i = 0; i < n; i++) {
		w = sendq_slot(q, q->wr_head + i);
		q->new_queued += (int64_t)w->length;
		if ((q->wr_head + i) % RNICE_SAMPLE_EVERY == 0)
			w->t0 = now_ns();
	}
	q->wr_head += n;
	sendq_work(q, n);
	/* It may have failed since the poster looked: nothing in the NIC would tell. */
	if (unlikely(q->failed))
		atomic_store(&q->scq->flush_wanted, true);
	q->new_wrs += n;
}

int sendq_capture(struct qp *q, const struct ibv_send_wr *wr)
{
	uint64_t length;
	struct swr *w;
	int i, err;

	if (sendq_held(q) >= q->max_wr)
		return ENOMEM;
	if (!sendq_sges_fit(q, wr))
		return q->ctx->provider->invalid;
	length = plan_length(wr);
	err = check(q, wr, length);
	if (err)
		return err;

	w = sendq_slot(q, q->wr_head);
	plan_start(w, wr, sendq_sges(w), length);
	for (i = 0; i < wr->num_sge; i++) /* as a rule one: a call would cost more */
		w->wr.sg_list[i] = wr->sg_list[i];
	if (inline_payload(wr))
		copy_inline(q, w, wr);
	w->signaled = sendq_signals(q, wr);
	w->cuttable = plan_cuttable(q->type, wr->opcode, shim.cfg.cut_imm);
	sendq_commit(q, 1);
	return 0;
}

/*
 * libmlx5 must never be asked to build into a full SQ: the builder then notes the error, but it and
 * its setters go on writing, over the WQE that was built last, and if that is already posted, the
 * NIC may read it so. Hence the exact count of what is in there.
 */
void sendq_native(struct qp *q, const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next) {
		q->nat_head++;
		if (!sendq_signals(q, wr))
			continue;
		/* Of a list that is too long the rest will be refused. */
		if (q->sig_head - q->sig_done <= q->nat_mask)
			q->nat_upto[q->sig_head & q->nat_mask] = q->nat_head;
		q->sig_head++;
		sendq_await(q, 1); /* so that its completion passes us */
	}
}

void sendq_native_undo(struct qp *q, const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next) {
		q->nat_head--;
		if (!sendq_signals(q, wr))
			continue;
		q->sig_head--;
		sendq_await(q, -1);
	}
}

void sendq_native_done(struct qp *q)
{
	if (q->sig_done == q->sig_head)
		return;
	q->nat_done = q->nat_upto[q->sig_done++ & q->nat_mask];
	sendq_await(q, -1);
}

void sendq_give_back(struct qp *q, const struct chunk *c, bool ok, uint64_t now, struct returned *r)
{
	if (!ok) {
		r->lost += c->bytes;
	} else {
		r->bytes += c->length;
		if (r->window && rnice_port_paced(q->ctx->dev->port))
			sendq_settle(q, r, now); /* how long each was in the NIC matters */
		r->window += c->bytes;
		r->since = c->posted;
	}
	r->chunks++;
	r->rooms += c->room;
	r->signaled += c->signaled;
}

/* A new counter value is worth an atomic operation only if there is one. */
static void count_some(struct rnice_port *port, enum rnice_counter which, uint64_t n)
{
	if (n)
		rnice_port_count(port, which, (int64_t)n);
}

void sendq_settle(struct qp *q, struct returned *r, uint64_t now)
{
	struct rnice_port *port = q->ctx->dev->port;

	if (r->window && unlikely(rnice_port_paced(port)))
		rnice_port_stayed(port, r->window, r->since, q->scq->looked, now);
	if (r->window)
		rnice_port_done(port, r->window, true, now);
	if (r->lost)
		rnice_port_done(port, r->lost, false, now);
	if (r->rooms)
		add_relaxed(&q->scq->room, (int32_t)r->rooms);
	sendq_work(q, -(int64_t)r->signaled);
	sendq_await(q, -(int32_t)r->chunks);
	count_some(port, RNICE_CTR_BYTES, r->bytes);
	count_some(port, RNICE_CTR_WRS, q->new_wrs);
	count_some(port, RNICE_CTR_CHUNKS, q->new_chunks);
	q->new_wrs = 0;
	q->new_chunks = 0;
	*r = (struct returned){0};
}

void sendq_count_queued(struct qp *q)
{
	if (q->new_queued)
		rnice_port_count(q->ctx->dev->port, RNICE_CTR_QUEUED_BYTES, q->new_queued);
	q->new_queued = 0;
}

void sendq_forget_queued(struct qp *q)
{
	struct swr *w;

	sendq_work(q, -(int64_t)(q->wr_head - q->wr_cut));
	for (; q->wr_cut != q->wr_head; q->wr_cut++) {
		w = sendq_slot(q, q->wr_cut);
		q->new_queued -= (int64_t)(w->length - w->cut);
	}
	sendq_count_queued(q);
}

void sendq_reset(struct qp *q)
{
	struct returned r = {0};
	uint64_t now = now_ns();

	for (; q->ck_done != q->ck_head; q->ck_done++)
		sendq_give_back(q, &q->chunks[q->ck_done & q->ck_mask], false, now, &r);
	sendq_settle(q, &r, now);
	sendq_forget_queued(q);
	q->wr_done = q->wr_head;
	q->nat_done = q->nat_head;
	sendq_await(q, -(int32_t)(q->sig_head - q->sig_done));
	q->sig_done = q->sig_head;
	q->nat_at = 0;
	q->loose = 0;
	q->loose_bytes = 0;
	q->failed = false;
	q->fail_status = 0;
}
