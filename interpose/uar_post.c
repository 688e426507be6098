/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting to QPs on thread domains of ours: the locks that libmlx5 leaves to whoever made them. */
#include "interpose/uar_state.h"

#include "interpose/spin.h"

struct table uar_placed = TABLE_INIT;

/* One wr_start in this many looks who posts, as one post_send in RNICE_SAMPLE_EVERY does. */
#define LOOK_EVERY 64

/* The build that shows what the lock is for: tests/uar/run. */
#ifdef RNICE_TEST_WITHOUT_DOOR_LOCK
#define lock_door(d) ((void)(d))
#define unlock_door(d) ((void)(d))
#else
#define lock_door(d) spin_lock(&(d)->lock)
#define unlock_door(d) spin_unlock(&(d)->lock)
#endif

/* ThreadSanitizer does not see what libmlx5 writes to a register; this stands for it. */
static inline void touch(struct door *d)
{
#ifdef __SANITIZE_THREAD__
	d->rings++;
#else
	(void)d;
#endif
}

/* NULL: not of ours. */
static inline struct qp *placed(struct ibv_qp *ibv)
{
	return table_near(&uar_placed, table_ptr_key(ibv));
}

void uar_lock_sends(struct qp *q)
{
	if (!q->uar.door)
		return;
	if (q->uar.wr_start)
		spin_lock(&q->uar.sq);
	lock_door(q->uar.door);
	touch(q->uar.door);
}

void uar_unlock_sends(struct qp *q)
{
	if (!q->uar.door)
		return;
	unlock_door(q->uar.door);
	if (q->uar.wr_start)
		spin_unlock(&q->uar.sq);
}

int uar_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = placed(ibv);
	int err;

	uar_lock_sends(q);
	err = q->ctx->ops.post_send(ibv, wr, bad);
	uar_unlock_sends(q);
	return err;
}

int uar_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = placed(ibv);
	int err;

	if (!q || !q->uar.door)
		return ctx_of(ibv->context)->ops.post_recv(ibv, wr, bad);
	spin_lock(&q->uar.rq);
	err = q->ctx->ops.post_recv(ibv, wr, bad);
	spin_unlock(&q->uar.rq);
	return err;
}

/* ---- ibv_wr_*: the QP from start to end, the door only while it is rung ---- */

static void start(struct ibv_qp_ex *x)
{
	struct qp *q = placed(&x->qp_base);
	uint32_t n;

	if (q->uar.door)
		spin_lock(&q->uar.sq);
	n = load_relaxed(&q->uar.starts);
	store_relaxed(&q->uar.starts, n + 1);
	if (unlikely(n % LOOK_EVERY == 0))
		uar_learn(q);
	q->uar.wr_start(x);
}

static int complete(struct ibv_qp_ex *x)
{
	struct qp *q = placed(&x->qp_base);
	int err;

	lock_door(q->uar.door);
	touch(q->uar.door);
	err = q->uar.wr_complete(x);
	unlock_door(q->uar.door);
	spin_unlock(&q->uar.sq);
	return err;
}

static void drop(struct ibv_qp_ex *x)
{
	struct qp *q = placed(&x->qp_base);

	q->uar.wr_abort(x);
	spin_unlock(&q->uar.sq);
}

/*
 * Right after creation, so that whoever patches next takes ours for the provider's. A QP where the
 * driver put it only has its posters looked at.
 */
void uar_patch_wr(struct qp *q)
{
	struct ibv_qp_ex *x = (struct ibv_qp_ex *)q->ibv;

	q->uar.wr_start = x->wr_start;
	x->wr_start = start;
	if (!q->uar.door)
		return;
	q->uar.wr_complete = x->wr_complete;
	q->uar.wr_abort = x->wr_abort;
	x->wr_complete = complete;
	x->wr_abort = drop;
}

void uar_unpatch_wr(struct qp *q)
{
	if (q->uar.wr_start)
		((struct ibv_qp_ex *)q->ibv)->wr_start = q->uar.wr_start;
}

/*
 * libmlx5 writes wr_complete anew when a QP goes to RESET or RTS. Then what lies there is its own,
 * and ours goes in front of it again; otherwise it is ours, or that of a layer above.
 */
uintptr_t uar_before(struct qp *q)
{
	return q->uar.wr_complete ? (uintptr_t)((struct ibv_qp_ex *)q->ibv)->wr_complete : 0;
}

void uar_after(struct qp *q, uintptr_t before)
{
	struct ibv_qp_ex *x = (struct ibv_qp_ex *)q->ibv;

	if (!before || (uintptr_t)x->wr_complete == before)
		return;
	q->uar.wr_complete = x->wr_complete;
	x->wr_complete = complete;
}

int uar_modify(struct qp *q, struct ibv_qp_attr *attr, int mask)
{
	uintptr_t before = uar_before(q);
	int err = real()->ibv_modify_qp(q->ibv, attr, mask);

	uar_after(q, before);
	return err;
}
