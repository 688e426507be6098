/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens to queued work when a QP changes its state or goes away. */
#include "interpose/fast.h"
#include "interpose/shim.h"
#include "interpose/uar.h"

/* ---- locking a QP with its CQs ---- */

/* The receive CQ, if it is not the send CQ, and if we manage it. */
static struct cq *other_cq(const struct qp *q)
{
	return q->rcq && q->rcq != q->scq && q->rcq->managed ? q->rcq : NULL;
}

/* All that may touch the QP's completions and its queue, in the order of shim.h. */
static void lock_all(struct qp *q)
{
	struct cq *a = q->scq, *b = other_cq(q);

	if (b && b < a) { /* two QPs may have the same two CQs in other roles */
		a = b;
		b = q->scq;
	}
	pthread_mutex_lock(&a->lock);
	if (b)
		pthread_mutex_lock(&b->lock);
	pthread_mutex_lock(&q->ctx->dev->pump_lock);
}

static void unlock_all(struct qp *q)
{
	pthread_mutex_unlock(&q->ctx->dev->pump_lock);
	if (other_cq(q))
		pthread_mutex_unlock(&q->rcq->lock);
	pthread_mutex_unlock(&q->scq->lock);
}

/* Every completion that is in the real CQs goes to the soft queues; lock_all() held. */
static void drain_cqs(struct qp *q)
{
	cq_drain_all(q->scq);
	if (other_cq(q))
		cq_drain_all(q->rcq);
}

/* Providers that clean a QP's completions out of its CQs do not find those in the soft queues. */
static void purge_soft(struct qp *q)
{
	if (!q->ctx->provider->purges_cq)
		return;
	cq_forget_qp(q->scq, q->qp_num);
	if (other_cq(q))
		cq_forget_qp(q->rcq, q->qp_num);
}

/* ---- modify ---- */

static int modify_to_error(struct qp *q, struct ibv_qp_attr *attr, int mask)
{
	int err;

	lock_all(q);
	pthread_mutex_lock(&q->lock);
	err = uar_modify(q, attr, mask);
	if (!err) {
		store_relaxed(&q->state, IBV_QPS_ERR);
		complete_failed(q, now_ns());
		complete_tail(q, now_ns());
	}
	pthread_mutex_unlock(&q->lock);
	unlock_all(q);
	return err;
}

/* Under q->lock: a post that saw the old state is over when this returns. */
static void set_state(struct qp *q, int state)
{
	pthread_mutex_lock(&q->lock);
	store_relaxed(&q->state, state);
	pthread_mutex_unlock(&q->lock);
}

/*
 * From the first set_state() on nothing of the queue goes to the NIC: pump_lock is held, and
 * qp_send_straight() wants RTS. uar_modify() runs without q->lock, since libmlx5 takes the locks of
 * the QP's CQs in it: a thread between start_poll and end_poll of a CQ that we do not manage has
 * one of those, and may wait for q->lock in a post.
 */
static int modify_to_reset(struct qp *q, struct ibv_qp_attr *attr, int mask)
{
	int before = load_relaxed(&q->state), err;

	lock_all(q);
	drain_cqs(q);
	set_state(q, IBV_QPS_RESET);
	err = uar_modify(q, attr, mask);
	if (err) {
		set_state(q, before);
	} else {
		drain_cqs(q); /* what completed in between; the rest is gone */
		pthread_mutex_lock(&q->lock);
		sendq_reset(q);
		pthread_mutex_unlock(&q->lock);
		purge_soft(q);
	}
	unlock_all(q);
	return err;
}

static int modify(struct qp *q, struct ibv_qp_attr *attr, int mask)
{
	int err;

	if (!q->may_manage || !(mask & IBV_QP_STATE))
		return uar_modify(q, attr, mask);
	if (attr->qp_state == IBV_QPS_ERR)
		return modify_to_error(q, attr, mask);
	if (attr->qp_state == IBV_QPS_RESET)
		return modify_to_reset(q, attr, mask);
	err = uar_modify(q, attr, mask);
	if (!err)
		store_relaxed(&q->state, attr->qp_state);
	return err;
}

/* libmlx5 sets wr_complete anew at RESET and RTS: no batch may be under way then. */
static bool changes_functions(const struct ibv_qp_attr *attr, int mask)
{
	return mask & IBV_QP_STATE &&
	       (attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_RTS);
}

EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct qp *q = qp_of(ibv);
	bool held;
	int err;

	if (!q)
		return real()->ibv_modify_qp(ibv, attr, mask);
	if (mask & IBV_QP_PATH_MTU && attr->path_mtu >= IBV_MTU_256 &&
	    attr->path_mtu <= IBV_MTU_4096)
		rnice_port_set_mtu(q->ctx->dev->port, 128u << attr->path_mtu);
	held = changes_functions(attr, mask) && wr_hold(q);
	err = modify(q, attr, mask);
	wr_patch(q);
	if (held)
		wr_leave(q);
	return err;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	int err = real()->ibv_query_qp(ibv, attr, mask, init);
	struct qp *q = qp_of(ibv);

	if (!err && q && q->hide_depth) {
		attr->cap.max_send_wr = q->max_wr;
		init->cap.max_send_wr = q->max_wr;
	}
	return err;
}

/* ---- destroy ---- */

/*
 * @dying: out of the list of senders and out of reach of whoever would put it back or post what is
 * queued. registry held, so that those who look at all QPs find it one way or the other.
 */
static void retire(struct qp *q, bool dying)
{
	lock_all(q);
	drain_cqs(q);
	pthread_mutex_lock(&q->lock);
	store_relaxed(&q->dying, dying);
	pthread_mutex_unlock(&q->lock);
	dev_delist(q->ctx->dev, q);
	unlock_all(q);
	if (!dying)
		dev_enlist(q->ctx->dev, q);
}

/* The provider's QP is gone: its last completions, then the books. */
static void bury(struct qp *q)
{
	if (!q->may_manage)
		return;
	lock_all(q);
	drain_cqs(q);
	pthread_mutex_lock(&q->lock);
	sendq_reset(q);
	pthread_mutex_unlock(&q->lock);
	purge_soft(q);
	unlock_all(q);
}

void qp_abandon(struct qp *q)
{
	fast_del(fast_qps, q->ibv);
	table_del(&shim.qps, table_ptr_key(q->ibv), q);
	if (q->may_manage) {
		retire(q, true);
		pthread_mutex_lock(&q->lock);
		sendq_reset(q);
		pthread_mutex_unlock(&q->lock);
	}
	qp_forget(q);
}

/*
 * The provider may refuse, and then other threads have used the QP all the time: it stays in the
 * table. If a new QP got its address before we are back, the entry is that one's already.
 */
EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct qp *q = qp_of(ibv);
	int err;

	if (!q)
		return real()->ibv_destroy_qp(ibv);
	pthread_mutex_lock(&shim.registry);
	if (q->may_manage)
		retire(q, true);
	pthread_mutex_unlock(&shim.registry);
	uar_destroy_begin(q);
	err = real()->ibv_destroy_qp(ibv);
	pthread_mutex_lock(&shim.registry);
	uar_destroy_end(q, !err);
	if (!err) {
		if (qp_of(ibv) == q)
			fast_del(fast_qps, ibv);
		table_del(&shim.qps, table_ptr_key(ibv), q);
		bury(q);
		qp_forget(q);
	} else if (q->may_manage) {
		retire(q, false);
	}
	pthread_mutex_unlock(&shim.registry);
	return err;
}
