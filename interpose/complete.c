/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the NIC reports, sorted: chunks are hidden or become the one completion of their WR, and all
 * else goes to the program as it came.
 *
 * Which is which. A chunk's wr_id is q->id_base + n, where id_base is 64 random bits per QP and n
 * counts chunks. A completion is ours if its QP is managed and n lies among the chunks in the NIC
 * (or a little before them: left over from before a RESET). With success the opcode must also say
 * send; with an error opcode is undefined, and a receive of the program with exactly such a wr_id
 * would be mistaken: odds of about 2^-42 for each random wr_id.
 *
 * Send completions come in order (InfiniBand Architecture Specification, 10.8.3.2), so one of chunk
 * n also completes, successfully, every chunk before it. An error ends the QP: its WR fails with
 * that status, once, whichever chunk it hit; the WRs behind it are flushed, one by one, signaled or
 * not. Those in the NIC are flushed by it; those never cut are flushed here after the last of them.
 */
#include "interpose/shim.h"

/* No CQ holds more stale completions than this. */
#define STALE_CHUNKS (1u << 22)

/* ---- whose is it ---- */

enum owner { PROGRAM, CHUNK, STALE };

static enum owner owner_of(const struct qp *q, const struct ibv_wc *wc, uint64_t *n)
{
	*n = wc->wr_id - q->id_base;
	if (wc->status == IBV_WC_SUCCESS && wc->opcode & IBV_WC_RECV)
		return PROGRAM;
	if (*n >= q->ck_head)
		return PROGRAM;
	if (*n >= q->ck_done)
		return CHUNK;
	return q->ck_done - *n <= STALE_CHUNKS ? STALE : PROGRAM;
}

/* ---- chunks and WRs end; q->lock held ---- */

static void release(struct qp *q, const struct chunk *c, bool ok, uint64_t now, struct returned *r)
{
	sendq_give_back(q, c, ok, now, r);
	if (c->natives > q->nat_done)
		q->nat_done = c->natives;
	q->ck_done++;
}

static void report(struct qp *q, struct swr *w, const struct ibv_wc *from, uint64_t piece)
{
	struct ibv_wc wc = *from;

	wc.wr_id = w->wr.wr_id;
	if (wc.status == IBV_WC_SUCCESS && wc.byte_len == (uint32_t)piece)
		wc.byte_len = (uint32_t)w->length; /* where the provider sets it: of the whole WR */
	cq_push(q->scq, &wc);
}

static void end_wr(struct qp *q, const struct swr *w, bool ok, uint64_t now)
{
	if (ok && w->t0)
		rnice_port_latency(q->ctx->dev->port, now - w->t0);
	q->wr_done++;
}

/* Chunk q->ck_done succeeded; @wc if the NIC said so itself, NULL if a later one implies it. */
static void succeed(struct qp *q, const struct ibv_wc *wc, uint64_t now, struct returned *r)
{
	const struct chunk *c = &q->chunks[q->ck_done & q->ck_mask];
	struct swr *w;

	release(q, c, true, now, r);
	if (!c->last)
		return;
	w = sendq_slot(q, q->wr_done);
	if (wc && w->signaled)
		report(q, w, wc, c->length);
	end_wr(q, w, true, now);
}

/* Chunk q->ck_done failed or was flushed. */
static void fail(struct qp *q, const struct ibv_wc *wc, uint64_t now, struct returned *r)
{
	const struct chunk *c = &q->chunks[q->ck_done & q->ck_mask];
	struct swr *w = sendq_slot(q, q->wr_done);

	release(q, c, false, now, r);
	if (!w->reported)
		report(q, w, wc, c->length);
	w->reported = true;
	if (c->last)
		end_wr(q, w, false, now);
}

static void flush_wr(struct qp *q, struct swr *w)
{
	struct ibv_wc wc = {
		.status = q->fail_status ? q->fail_status : IBV_WC_WR_FLUSH_ERR,
		.qp_num = q->qp_num,
	};

	if (!q->fail_status)
		wc.vendor_err = q->ctx->provider->flush_vendor_err;
	q->fail_status = 0;
	if (!w->reported)
		report(q, w, &wc, 0);
	end_wr(q, w, false, 0);
}

/* @q failed and has nothing in the NIC: every WR that is left. */
static void flush_queue(struct qp *q)
{
	sendq_forget_queued(q);
	while (q->wr_done != q->wr_head)
		flush_wr(q, sendq_slot(q, q->wr_done));
	q->loose = 0;
	q->loose_bytes = 0;
}

void complete_failed(struct qp *q, uint64_t now)
{
	q->failed_at = now;
	q->failed = true;
	atomic_store(&q->scq->flush_wanted, true);
}

/*
 * Unsignaled chunks at the end of a failed queue: flushed by the NIC, each with a completion, or
 * done before the failure, without one. If none came for so long, they were done.
 */
#define TAIL_NS 20000000u
/* Likewise for what went past the queue, and must complete before what stands in it. */
#define PASSED_NS 100000000u

/* Something went past the queue, and no chunk behind it completed. */
static bool passed_may_be_inside(const struct qp *q)
{
	return q->ck_done < q->nat_at;
}

void complete_tail(struct qp *q, uint64_t now)
{
	struct returned r = {0};

	if (!q->failed || q->wr_done == q->wr_head)
		return;
	if (sendq_has_signaled(q))
		return; /* a completion will come, and we with it */
	if ((q->ck_head != q->ck_done && now - q->failed_at < TAIL_NS) ||
	    (passed_may_be_inside(q) && now - q->failed_at < PASSED_NS)) {
		atomic_store(&q->scq->flush_wanted, true);
		return;
	}
	while (q->ck_done != q->ck_head)
		succeed(q, NULL, now, &r);
	sendq_settle(q, &r, now);
	flush_queue(q);
}

/* ---- dispatch ---- */

/* run->q is the QP of chunk @n. */
static void complete_chunk(struct run *run, const struct ibv_wc *wc, uint64_t n)
{
	struct qp *q = run->q;

	while (q->ck_done < n)
		succeed(q, NULL, run->now, &run->returned);
	if (wc->status == IBV_WC_SUCCESS) {
		succeed(q, wc, run->now, &run->returned);
	} else {
		complete_failed(q, run->now);
		fail(q, wc, run->now, &run->returned);
	}
	run->more = q->wr_cut != q->wr_head && !q->failed;
}

/* An error came by the receive CQ: the send queue is flushed when its own CQ is polled next. */
static void fail_elsewhere(struct qp *q, uint64_t now)
{
	pthread_mutex_lock(&q->lock);
	complete_failed(q, now);
	pthread_mutex_unlock(&q->lock);
}

void complete_end(struct run *run)
{
	struct qp *q = run->q;

	if (!q)
		return;
	sendq_settle(q, &run->returned, run->now);
	if (run->more)
		dev_enlist(q->ctx->dev, q);
	pthread_mutex_unlock(&q->lock);
	run->q = NULL;
	run->more = false;
}

/* The QP of @wc, locked, if its sends complete here; otherwise NULL, and none is locked. */
static struct qp *enter(struct run *run, const struct ibv_wc *wc)
{
	struct qp *q = run->q;

	if (q && q->qp_num == wc->qp_num)
		return q;
	complete_end(run);
	q = table_get(&run->cq->ctx->qpns, table_qpn_key(wc->qp_num));
	if (q && q->scq == run->cq) {
		pthread_mutex_lock(&q->lock);
		run->q = q;
		return q;
	}
	if (q && wc->status != IBV_WC_SUCCESS && q->type != IBV_QPT_UD)
		fail_elsewhere(q, run->now);
	return NULL;
}

void complete_wc(struct run *run, const struct ibv_wc *wc)
{
	struct qp *q = enter(run, wc);
	enum owner whose;
	uint64_t n;

	if (!q) {
		cq_push(run->cq, wc);
		return;
	}
	whose = owner_of(q, wc, &n);
	if (whose == PROGRAM) {
		cq_push(run->cq, wc);
		if (wc->status == IBV_WC_SUCCESS && !(wc->opcode & IBV_WC_RECV))
			sendq_native_done(q);
	} else if (whose == CHUNK) {
		complete_chunk(run, wc, n);
	}
	/* Any error on a connected QP, also of a receive, has put it into the error state. */
	if (wc->status != IBV_WC_SUCCESS && whose != STALE && q->type != IBV_QPT_UD)
		complete_failed(q, run->now);
	if (q->failed)
		complete_tail(q, run->now);
}
