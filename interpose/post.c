/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the program's sends come in. Bypass: count, and on to the provider. Managed: into the NIC
 * if nothing holds them back (qp_send_straight()), else into the software queue. Class auto moves a
 * QP between the two by what it sends.
 */
#include "interpose/fast.h"
#include "interpose/wr.h"

#include <errno.h>

/*
 * Class auto. A QP is bulk when its WRs carry AUTO_UP bytes on average, or when one alone is so
 * large that it blocks the port for long; it is a latency QP again below AUTO_DOWN. The average
 * moves by 1/16 per WR. PeRF (ATC 2024) calls 1 KB per message bulk; what needs cutting starts at
 * a few MTUs, and the gap between the two thresholds keeps a QP from flapping.
 */
#define AUTO_UP 8192
#define AUTO_DOWN 2048
#define AUTO_HUGE 65536

/* ---- bypass ---- */

COLD void post_sample(struct qp *q, uint64_t wr_id)
{
	struct cq *cq = q->scq;

	if (!cq || cq->managed)
		return;
	store_relaxed(&cq->slow, false);
	store_relaxed(&cq->sample_wr_id, wr_id);
	store_relaxed(&cq->sample_qpn, q->ibv->qp_num);
	store_relaxed(&cq->sample_t0, now_ns());
	atomic_store_explicit(&cq->slow, true, memory_order_release);
	fast_suspend(fast_cqs, cq->ibv);
	if (cq->ex)
		cqex_watch(cq);
}

/* One post in RNICE_SAMPLE_EVERY: its last signaled WR. */
COLD static void sample(struct qp *q, const struct ibv_send_wr *wr)
{
	const struct ibv_send_wr *last = NULL;

	for (; wr; wr = wr->next)
		if (sendq_signals(q, wr))
			last = wr;
	if (last)
		post_sample(q, last->wr_id);
}

COLD static int post_sampled(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = qp_near(ibv);

	sample(q, wr);
	uar_learn(q);
	return q->real_post(ibv, wr, bad);
}

bool post_first(struct qp *q)
{
	if (load_relaxed(&q->mode) == QP_NEW) {
		uar_learn(q);
		store_relaxed(&q->mode, QP_BYPASS);
	}
	fast_put(fast_qps, q->ibv,
		 (struct fast){.fn = (void *)q->real_post,
			       .activity = q->activity,
			       .complete = q->batch ? (void *)q->batch->ops.wr_complete : NULL});
	return count_post(q->activity);
}

static int post_bypass(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (unlikely(post_first(q)))
		return post_sampled(q->ibv, wr, bad);
	return q->real_post(q->ibv, wr, bad);
}

COLD static int post_unknown(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ctx_of(ibv->context)->ops.post_send(ibv, wr, bad);
}

/* ---- managed ---- */

static bool goes_around(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_ATOMIC_WRITE:
		return false;
	default: /* TSO has a header elsewhere; others are for the provider to judge */
		return true;
	}
}

void post_past_queue(struct qp *q, const struct ibv_send_wr *wr)
{
	pthread_mutex_lock(&q->lock);
	sendq_passed(q);
	if (q->nat_upto)
		sendq_native(q, wr);
	pthread_mutex_unlock(&q->lock);
}

void post_refused(struct qp *q, const struct ibv_send_wr *wr)
{
	if (!q->nat_upto)
		return;
	pthread_mutex_lock(&q->lock);
	sendq_native_undo(q, wr);
	pthread_mutex_unlock(&q->lock);
}

static int post_counted(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err;

	if (q->nat_upto)
		post_past_queue(q, wr);
	err = q->real_post(q->ibv, wr, bad);
	if (unlikely(err))
		post_refused(q, *bad);
	return err;
}

/* What of the list does not fit into a queue as deep as the program knows it. */
static struct ibv_send_wr *beyond(struct qp *q, struct ibv_send_wr *wr)
{
	uint64_t held;

	pthread_mutex_lock(&q->lock);
	held = sendq_held(q);
	pthread_mutex_unlock(&q->lock);
	for (; wr && held < q->max_wr; wr = wr->next)
		held++;
	return wr;
}

static int post_native(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *end = q->hide_depth ? beyond(q, wr) : NULL, one, *none;
	int err = 0;

	if (likely(!end))
		return post_counted(q, wr, bad);
	for (; wr != end && !err; wr = err ? wr : wr->next) {
		one = *wr;
		one.next = NULL;
		err = post_counted(q, &one, &none);
	}
	*bad = wr;
	return err ? err : ENOMEM;
}

/* One WR that is not captured: everything before it first, then as the program posted it. */
COLD static int post_around(struct qp *q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr one = *wr, *bad;

	if (qp_push_out(q, 1))
		return ENOMEM;
	one.next = NULL;
	return post_native(q, &one, &bad);
}

bool post_is_plain(struct qp *q)
{
	if ((!q->failed && load_relaxed(&q->state) == IBV_QPS_RTS) || q->wr_head != q->wr_cut)
		return false;
	sendq_passed(q);
	return true;
}

COLD int post_make_space(struct qp *q, uint32_t more)
{
	int err;

	dev_pump(q->ctx->dev);
	pthread_mutex_lock(&q->scq->lock);
	cq_drain(q->scq, UINT32_MAX);
	pthread_mutex_unlock(&q->scq->lock);
	pthread_mutex_lock(&q->lock);
	err = sendq_held(q) + more < q->max_wr ? 0 : ENOMEM;
	pthread_mutex_unlock(&q->lock);
	return err;
}

/* Queue the list; *@rest is what was not queued. */
static int capture_list(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **rest)
{
	int err = 0;

	for (; wr && !err && !goes_around(wr); wr = err ? wr : wr->next)
		err = sendq_capture(q, wr);
	*rest = wr;
	return err;
}

COLD static void become_managed(struct qp *q)
{
	channel_take(q->scq->ch);
	rnice_port_count(q->ctx->dev->port, RNICE_CTR_MANAGED_QPS, 1);
	store_relaxed(&q->mode, QP_MANAGED);
}

/* Into the queue, and from there as far as may be. */
static int post_queued(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool full;
	int err = 0;

	while (wr && !err) {
		pthread_mutex_lock(&q->lock);
		if (post_is_plain(q)) {
			pthread_mutex_unlock(&q->lock);
			return post_native(q, wr, bad);
		}
		/* Class auto: another thread that shares the QP took it off the queue meanwhile. */
		if (load_relaxed(&q->mode) == QP_WATCHED)
			become_managed(q);
		err = capture_list(q, wr, &wr);
		full = sendq_held(q) >= q->max_wr;
		qp_unlock_and_send(q);
		if (err && full) {
			err = post_make_space(q, 0);
		} else if (!err && wr) {
			err = post_around(q, wr);
			wr = err ? wr : wr->next;
		}
	}
	progress_wake();
	if (err)
		*bad = wr;
	return err;
}

static int post_managed(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool gone = false;
	int err;

	if (likely(!wr->next && !goes_around(wr))) {
		pthread_mutex_lock(&q->lock);
		gone = qp_send_straight(q, wr, &err);
		pthread_mutex_unlock(&q->lock);
	}
	if (!gone)
		return post_queued(q, wr, bad);
	if (unlikely(err))
		*bad = wr;
	progress_wake();
	return err;
}

/* ---- class auto ---- */

#ifdef RNICE_TEST_FLIP
/* A build for tests: every QP changes each millisecond, whatever it sends. */
static void classify(struct qp *q, const struct ibv_send_wr *wr, bool *huge)
{
	(void)wr;
	*huge = now_ns() / 1000000 & 1;
	q->ewma = 0;
}
#else
static void classify(struct qp *q, const struct ibv_send_wr *wr, bool *huge)
{
	uint64_t len;

	*huge = false;
	for (; wr; wr = wr->next) {
		len = plan_length(wr);
		*huge |= len >= AUTO_HUGE;
		if (len > UINT32_MAX / 32)
			len = UINT32_MAX / 32;
		q->ewma += ((uint32_t)len - q->ewma / 16);
	}
}
#endif

/* q->lock held; true if the QP is on the bypass now. */
static bool become_watched(struct qp *q)
{
	if (q->wr_head != q->wr_done || q->ck_head != q->ck_done)
		return false;
	rnice_port_count(q->ctx->dev->port, RNICE_CTR_MANAGED_QPS, -1);
	store_relaxed(&q->mode, QP_WATCHED);
	return true;
}

bool post_stays_watched(struct qp *q, const struct ibv_send_wr *wr)
{
	bool huge, watched;

	pthread_mutex_lock(&q->lock);
	classify(q, wr, &huge);
	watched = load_relaxed(&q->mode) == QP_WATCHED;
	if (watched && (huge || q->ewma / 16 >= AUTO_UP)) {
		become_managed(q);
		watched = false;
	} else if (!watched && !huge && q->ewma / 16 < AUTO_DOWN) {
		watched = become_watched(q);
	}
	if (watched)
		sendq_passed(q);
	pthread_mutex_unlock(&q->lock);
	return watched;
}

static int post_auto(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (!post_stays_watched(q, wr))
		return post_managed(q, wr, bad);
	count_post(q->activity);
	return post_native(q, wr, bad);
}

/* Everything but a bypass QP found at first sight. */
static __attribute__((noinline)) int post_slow(struct ibv_qp *ibv, struct ibv_send_wr *wr,
					       struct ibv_send_wr **bad)
{
	struct qp *q = qp_near(ibv);
	int err;

	if (unlikely(!q))
		return post_unknown(ibv, wr, bad);
	if (load_relaxed(&q->mode) <= QP_NEW)
		return post_bypass(q, wr, bad);
	uar_learn(q);
	if (!wr) /* the provider knows what to say */
		return q->real_post(ibv, wr, bad);
	wr_enter(q);
	err = shim.cfg.cls == RNICE_CLASS_AUTO ? post_auto(q, wr, bad) : post_managed(q, wr, bad);
	wr_leave(q);
	return err;
}

int hook_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct fast *f = fast_look(fast_qps, ibv);
	int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);

	if (unlikely(!f))
		return post_slow(ibv, wr, bad);
	if (unlikely(count_post(f->activity)))
		return post_sampled(ibv, wr, bad);
	post = f->fn;
	return post(ibv, wr, bad);
}
