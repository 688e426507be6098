/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs as they come: which of them are managed, and with which real queue depths. */
#include "interpose/fast.h"
#include "interpose/shim.h"

#include <errno.h>
#include <stdlib.h>

/* ---- which mode ---- */

/* Why a QP cannot be managed although the process is; RNICE_UNC_KINDS if it can. */
static enum rnice_uncontrolled obstacle(const struct ibv_qp_init_attr *attr, uint64_t send_ops)
{
	struct cq *scq = cq_of(attr->send_cq);

	switch (attr->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
		break;
	default:
		return RNICE_UNC_QP_TYPE;
	}
	if (send_ops & ~(uint64_t)WR_RECORDED)
		return RNICE_UNC_WR_API;
	if (!scq || load_relaxed(&scq->handed_out))
		return RNICE_UNC_DIRECT;
	if (!scq->managed || load_relaxed(&scq->room) <= 0)
		return RNICE_UNC_CQ_EX;
	return RNICE_UNC_KINDS;
}

/* XRC_RECV only receives: nothing to control about it. */
static bool sends(enum ibv_qp_type type)
{
	return type != IBV_QPT_XRC_RECV;
}

static void count_uncontrolled(struct qp *q, enum rnice_uncontrolled why)
{
	if (!shim.managing || q->counted_as)
		return;
	rnice_port_count(q->ctx->dev->port, RNICE_CTR_UNCONTROLLED + why, 1);
	q->counted_as = why + 1;
}

static struct qp *new_qp(struct ctx *ctx, const struct ibv_qp_init_attr *attr,
			 enum rnice_uncontrolled why)
{
	struct qp *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->ctx = ctx;
	q->type = attr->qp_type;
	q->real_post = ctx->ops.post_send;
	q->scq = cq_of(attr->send_cq);
	q->rcq = cq_of(attr->recv_cq);
	q->all_signaled = attr->sq_sig_all;
	q->max_wr = attr->cap.max_send_wr;
	pthread_mutex_init(&q->lock, NULL);
	if (why == RNICE_UNC_SHARED_QP || (sends(q->type) && why < RNICE_UNC_KINDS))
		count_uncontrolled(q, why);
	q->may_manage = shim.managing && sends(q->type) && why == RNICE_UNC_KINDS;
	return q;
}

static void free_qp(struct qp *q)
{
	struct rnice_port *port = q->ctx->dev->port;

	if (q->counted_as)
		rnice_port_count(port, RNICE_CTR_UNCONTROLLED + q->counted_as - 1, -1);
	if (q->activity && q->activity != &q->unseen)
		rnice_port_activity_release(port, q->activity);
	pthread_mutex_destroy(&q->lock);
	wr_free(q);
	sendq_free(q);
	free(q);
}

/*
 * Whose posts say "latency traffic is active"? Those of latency processes, and in class auto those
 * of QPs that send small messages. What a bulk process sends past us must not slow itself down.
 */
static uint64_t *activity_of(struct qp *q)
{
	bool tells = shim.cfg.cls == RNICE_CLASS_LATENCY ||
		     (shim.cfg.cls == RNICE_CLASS_AUTO && q->may_manage);

	return tells ? rnice_port_activity_line(q->ctx->dev->port) : &q->unseen;
}

/* ---- create ---- */

/*
 * A tiny queue would leave room for one chunk at a time: ask for more, but do not tell. One a
 * little larger gets RNICE_SQ_MIN from providers that round up, and the program may have counted on
 * that.
 */
static void deepen(struct qp *q, struct ibv_qp_cap *cap)
{
	q->hide_depth = q->may_manage && cap->max_send_wr <= RNICE_SQ_MIN / 2;
	if (q->hide_depth)
		cap->max_send_wr = RNICE_SQ_MIN;
}

/* registry held */
static void link_qp(struct qp *q)
{
	q->ctx_next = q->ctx->qps;
	q->ctx->qps = q;
	if (!q->may_manage)
		return;
	pthread_mutex_lock(&q->scq->lock);
	q->cq_next = q->scq->qps;
	q->scq->qps = q;
	pthread_mutex_unlock(&q->scq->lock);
}

/* registry held */
static void unlink_qp(struct qp *q)
{
	struct qp **p;

	for (p = &q->ctx->qps; *p; p = &(*p)->ctx_next)
		if (*p == q) {
			*p = q->ctx_next;
			break;
		}
	if (!q->may_manage)
		return;
	pthread_mutex_lock(&q->scq->lock);
	for (p = &q->scq->qps; *p; p = &(*p)->cq_next)
		if (*p == q) {
			*p = q->cq_next;
			break;
		}
	cq_unreserve(q->scq, q->max_wr);
	pthread_mutex_unlock(&q->scq->lock);
}

static void unreserve(struct qp *q)
{
	pthread_mutex_lock(&q->scq->lock);
	cq_unreserve(q->scq, q->max_wr);
	pthread_mutex_unlock(&q->scq->lock);
}

/* registry held. Everything a managed QP needs; 0 or ENOMEM. */
static int equip(struct qp *q, struct ibv_qp_cap *cap)
{
	uint32_t real_depth = cap->max_send_wr;
	int err;

	if (q->hide_depth)
		cap->max_send_wr = q->max_wr;
	else
		q->max_wr = real_depth;
	if (!q->may_manage)
		return 0;
	err = sendq_init(q, cap, real_depth);
	if (err)
		return err;
	pthread_mutex_lock(&q->scq->lock);
	err = cq_reserve(q->scq, q->max_wr);
	pthread_mutex_unlock(&q->scq->lock);
	if (err)
		return err;
	err = table_put(&q->ctx->qpns, table_qpn_key(q->qp_num), q);
	if (err)
		unreserve(q);
	return err;
}

static void count_users(struct qp *q, int n)
{
	if (q->scq)
		add_relaxed(&q->scq->users, n);
	if (q->rcq)
		add_relaxed(&q->rcq->users, n);
}

/*
 * registry held. @ibv was just made; on failure the program gets it all the same, as a bypass QP,
 * if it can do without us. False: it cannot.
 */
static bool finish(struct qp *q, struct ibv_qp *ibv, struct ibv_qp_cap *cap)
{
	struct rnice_port *port = q->ctx->dev->port;

	q->ibv = ibv;
	q->qp_num = ibv->qp_num;
	fast_del(fast_qps, ibv); /* of a QP just destroyed that had its address */
	store_relaxed(&q->state, IBV_QPS_RESET);
	if (equip(q, cap)) {
		log_warn("QP 0x%x: out of memory; it runs unscheduled", ibv->qp_num);
		q->may_manage = false;
	}
	q->activity = activity_of(q);
	store_relaxed(&q->mode, !q->may_manage			   ? QP_NEW
				: shim.cfg.cls == RNICE_CLASS_AUTO ? QP_WATCHED
								   : QP_MANAGED);
	if (table_put(&shim.qps, table_ptr_key(ibv), q)) {
		bool alone = uar_release(q);

		if (q->may_manage)
			unreserve(q);
		table_del(&q->ctx->qpns, table_qpn_key(q->qp_num), q);
		free_qp(q);
		return alone;
	}
	link_qp(q);
	wr_attach(q);
	count_users(q, 1);
	rnice_port_count(port, RNICE_CTR_QPS, 1);
	if (load_relaxed(&q->mode) == QP_MANAGED)
		rnice_port_count(port, RNICE_CTR_MANAGED_QPS, 1);
	if (q->may_manage)
		progress_start();
	return true;
}

static bool has_wr_api(const struct ibv_qp_init_attr_ex *ex)
{
	return ex && ex->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
}

/* How to create a QP; the first fields of all kinds of attributes are the same (verbs.h). */
struct maker {
	struct ibv_qp_init_attr *attr;
	struct ibv_qp_init_attr_ex *ex; /* the same, if they are extended ones; else NULL */
	struct ibv_pd **pd;		/* where @make takes it from */
	enum rnice_uncontrolled why;	/* RNICE_UNC_KINDS, or an obstacle to managing it */
	bool movable;			/* to another doorbell register */
	struct ibv_qp *(*make)(void *);
	void *arg;
};

/* On the doorbell register that suits, or else as the program would have made it. */
static struct ibv_qp *make_placed(struct qp *q, const struct maker *m)
{
	struct ibv_pd *pd = *m->pd;
	struct ibv_qp *ibv;

	if (m->movable)
		*m->pd = uar_place(q, pd, m->attr->qp_type);
	ibv = m->make(m->arg);
	if (!ibv && *m->pd != pd) {
		uar_made(q, NULL, false);
		*m->pd = pd;
		ibv = m->make(m->arg);
	}
	*m->pd = pd;
	return ibv && uar_made(q, ibv, has_wr_api(m->ex)) ? ibv : NULL;
}

/* @ex: the same attributes if they are extended ones, else NULL. */
static struct qp *new_with(struct ctx *ctx, const struct ibv_qp_init_attr *attr,
			   const struct ibv_qp_init_attr_ex *ex, enum rnice_uncontrolled why)
{
	bool wr_api = has_wr_api(ex);
	struct qp *q;

	if (why == RNICE_UNC_KINDS)
		why = obstacle(attr, wr_api ? ex->send_ops_flags : 0);
	q = new_qp(ctx, attr, why);
	if (q && wr_api && wr_prepare(q, ex->send_ops_flags)) {
		free_qp(q);
		return NULL;
	}
	return q;
}

/*
 * A cut RDMA WRITE_WITH_IMM is plain WRITEs with the immediate on the last, and librxe fills in
 * only builders that were asked for.
 */
static bool widen(struct ibv_qp_init_attr_ex *ex)
{
	if (!has_wr_api(ex) || !(ex->send_ops_flags & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) ||
	    ex->send_ops_flags & IBV_QP_EX_WITH_RDMA_WRITE)
		return false;
	ex->send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
	return true;
}

static void narrow(struct ibv_qp_init_attr_ex *ex, bool *widened)
{
	if (*widened)
		ex->send_ops_flags &= ~(uint64_t)IBV_QP_EX_WITH_RDMA_WRITE;
	*widened = false;
}

/*
 * If the provider cannot make the queue deeper than the program wants it, it is asked again for
 * the program's own depth.
 */
static struct ibv_qp *create(struct ctx *ctx, const struct maker *m)
{
	uint32_t asked = m->attr->cap.max_send_wr;
	bool widened = false;
	struct ibv_qp *ibv;
	struct qp *q;

	pthread_mutex_lock(&shim.registry);
	q = new_with(ctx, m->attr, m->ex, m->why);
	if (!q) {
		pthread_mutex_unlock(&shim.registry);
		return m->make(m->arg);
	}
	deepen(q, &m->attr->cap);
	if (q->may_manage)
		widened = widen(m->ex);
	ibv = make_placed(q, m);
	if (!ibv && (q->hide_depth || widened)) {
		q->hide_depth = false;
		m->attr->cap.max_send_wr = asked;
		narrow(m->ex, &widened);
		ibv = make_placed(q, m);
	}
	narrow(m->ex, &widened);
	if (!ibv)
		free_qp(q);
	else if (!finish(q, ibv, &m->attr->cap))
		ibv = NULL;
	pthread_mutex_unlock(&shim.registry);
	return ibv;
}

struct create_qp_call {
	struct ibv_pd *pd;
	struct ibv_qp_init_attr *attr;
};

static struct ibv_qp *call_create_qp(void *arg)
{
	struct create_qp_call *c = arg;

	return real()->ibv_create_qp(c->pd, c->attr);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct create_qp_call call = {.pd = pd, .attr = attr};
	struct maker m = {.attr = attr,
			  .pd = &call.pd,
			  .why = RNICE_UNC_KINDS,
			  .movable = true,
			  .make = call_create_qp,
			  .arg = &call};
	struct ctx *ctx = ctx_of(pd->context);

	if (!ctx)
		return call_create_qp(&call);
	return create(ctx, &m);
}

/* The first fields of the extended attributes are those of the plain ones (verbs.h). */
struct ibv_qp *qp_create_extended(struct ctx *ctx, struct ibv_qp_init_attr_ex *attr,
				  enum rnice_uncontrolled why, bool movable,
				  struct ibv_qp *(*make)(void *), void *arg)
{
	struct ibv_pd *none = NULL;
	struct maker m = {.attr = (struct ibv_qp_init_attr *)attr,
			  .ex = attr,
			  .pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? &attr->pd : &none,
			  .why = why,
			  .movable = movable,
			  .make = make,
			  .arg = arg};

	return create(ctx, &m);
}

struct create_qp_ex_call {
	struct ctx *ctx;
	struct ibv_qp_init_attr_ex *attr;
};

static struct ibv_qp *call_create_qp_ex(void *arg)
{
	struct create_qp_ex_call *c = arg;

	return c->ctx->create_qp_ex(c->ctx->ibv, c->attr);
}

struct ibv_qp *hook_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct create_qp_ex_call call = {.ctx = ctx_of(context), .attr = attr};

	/* cppcheck-suppress returnDanglingLifetime ; what @make returns is not its argument */
	return qp_create_extended(call.ctx, attr, RNICE_UNC_KINDS, true, call_create_qp_ex, &call);
}

void qp_adopt(struct ibv_qp *ibv, const struct ibv_qp_init_attr *attr, enum rnice_uncontrolled why)
{
	struct ibv_qp_cap cap = attr->cap;
	struct ctx *ctx = ctx_of(ibv->context);
	struct qp *q;

	if (!ctx)
		return;
	pthread_mutex_lock(&shim.registry);
	q = new_qp(ctx, attr, why);
	if (q)
		finish(q, ibv, &cap);
	pthread_mutex_unlock(&shim.registry);
}

/* What is queued goes ahead of what the program will put into the real queue. */
void qp_hand_out(struct qp *q)
{
	if (q->may_manage && !load_relaxed(&q->dying)) {
		qp_push_out(q, 0);
		wr_hand_out(q);
		pthread_mutex_lock(&q->lock);
		if (load_relaxed(&q->mode) == QP_MANAGED)
			rnice_port_count(q->ctx->dev->port, RNICE_CTR_MANAGED_QPS, -1);
		store_relaxed(&q->mode, QP_BYPASS);
		pthread_mutex_unlock(&q->lock);
	}
	if (sends(q->type))
		count_uncontrolled(q, RNICE_UNC_DIRECT);
}

void qp_forget(struct qp *q)
{
	struct rnice_port *port = q->ctx->dev->port;

	table_del(&q->ctx->qpns, table_qpn_key(q->qp_num), q); /* the number may be in use again */
	unlink_qp(q);
	count_users(q, -1);
	uar_forget(q);
	rnice_port_count(port, RNICE_CTR_QPS, -1);
	if (load_relaxed(&q->mode) == QP_MANAGED)
		rnice_port_count(port, RNICE_CTR_MANAGED_QPS, -1);
	free_qp(q);
}

/* ---- what goes past post_send and would overtake the queue ---- */

static int bind_native(struct ctx *ctx, struct qp *q, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	int err;

	uar_lock_sends(q);
	err = ctx->ops.bind_mw(q->ibv, mw, bind);
	uar_unlock_sends(q);
	return err;
}

static int bind_past_queue(struct ctx *ctx, struct qp *q, struct ibv_mw *mw,
			   struct ibv_mw_bind *bind)
{
	struct ibv_send_wr as_wr = {.send_flags = bind->send_flags};
	int err;

	post_past_queue(q, &as_wr);
	err = bind_native(ctx, q, mw, bind);
	if (err)
		post_refused(q, &as_wr);
	return err;
}

static bool is_bypass(struct qp *q)
{
	int mode = load_relaxed(&q->mode);

	return mode == QP_BYPASS || mode == QP_NEW;
}

int hook_bind_mw(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ctx *ctx = ctx_of(ibv->context);
	struct qp *q = qp_of(ibv);
	int err;

	if (!q)
		return ctx->ops.bind_mw(ibv, mw, bind);
	if (is_bypass(q))
		return bind_native(ctx, q, mw, bind);
	wr_enter(q);
	if ((load_relaxed(&q->mode) == QP_MANAGED && qp_push_out(q, 1)) ||
	    (q->hide_depth && post_make_space(q, 0)))
		err = ENOMEM;
	else
		err = bind_past_queue(ctx, q, mw, bind);
	wr_leave(q);
	return err;
}

/* registry held. Is there anything to be pushed out? */
static bool has_queue(struct qp *q)
{
	bool any;

	pthread_mutex_lock(&q->lock);
	any = q->wr_cut != q->wr_head && !load_relaxed(&q->dying);
	pthread_mutex_unlock(&q->lock);
	return any;
}

/* Queued UD sends point to address handles: they leave before the handle does. */
EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct ctx *ctx = ctx_of(ah->context);
	struct qp *q;

	if (ctx && shim.managing) {
		pthread_mutex_lock(&shim.registry);
		for (q = ctx->qps; q; q = q->ctx_next)
			if (q->may_manage && q->type == IBV_QPT_UD && has_queue(q))
				qp_push_out(q, 0);
		pthread_mutex_unlock(&shim.registry);
	}
	return real()->ibv_destroy_ah(ah);
}
