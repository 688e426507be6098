/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_wr_*: our functions in the places of the provider's, and what they record.
 *
 * A batch is posted as a whole by wr_complete or not at all, as with the providers; what they would
 * report there (queue full, too many SGEs, too much inline data) is reported there. A batch that
 * cannot be recorded as a list of WRs that may be cut, or that the queue must not hold back, is
 * replayed by wr_complete itself, as it was and after all that is queued.
 */
#include "interpose/wr.h"

#include "interpose/fast.h"
#include "interpose/uar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A program that stays in its region (waiting for a completion?) must not stop its own queue. */
#define KEEP_OUT_NS 1000000u
/* How long modify_qp waits for another thread to leave it. */
#define HOLD_NS 100000000u

static struct wr_batch *all_batches; /* under registry */

/* ---- the region ---- */

static void set_open(struct qp *q, bool open)
{
	pthread_mutex_lock(&q->lock);
	q->batch->open = open;
	q->batch->closed_out = 0;
	pthread_mutex_unlock(&q->lock);
}

bool wr_in_region(struct qp *q, uint64_t now)
{
	struct wr_batch *b = q->batch;

	if (!b->open)
		return false;
	if (!b->closed_out)
		b->closed_out = now;
	return now - b->closed_out < KEEP_OUT_NS;
}

void wr_enter(struct qp *q)
{
	if (q->batch)
		pthread_mutex_lock(&q->batch->lock);
}

void wr_leave(struct qp *q)
{
	if (q->batch)
		pthread_mutex_unlock(&q->batch->lock);
}

static void hook_wr_start(struct ibv_qp_ex *x)
{
	struct qp *q = qp_near(x);
	struct wr_batch *b = q->batch;

	pthread_mutex_lock(&b->lock);
	store_relaxed(&b->owner, (unsigned long)pthread_self());
	b->n = 0;
	b->last = NULL;
	b->whole = false;
	b->err = 0;
	set_open(q, true);
}

static void end_region(struct qp *q)
{
	store_relaxed(&q->batch->owner, 0);
	pthread_mutex_unlock(&q->batch->lock);
	if (atomic_load(&q->ctx->dev->waiting))
		dev_pump(q->ctx->dev); /* it was kept out */
}

static void hook_wr_abort(struct ibv_qp_ex *x)
{
	struct qp *q = qp_near(x);

	set_open(q, false);
	end_region(q);
}

/* ---- builders ---- */

/* No setter will follow for the last WR. */
static void seal(struct qp *q)
{
	struct wr_batch *b = q->batch;
	struct swr *w = b->last;
	unsigned int flags;
	/* Its pieces are plain WRITEs: there is a builder for them if the provider agreed (qp.c).
	 */
	bool cut_imm = shim.cfg.cut_imm && b->ops.wr_rdma_write;

	b->last = NULL;
	if (!w)
		return;
	flags = w->wr.send_flags;
	/* Missing setters and inline READs mean what the provider makes of them. */
	b->whole |= flags & (WR_NO_DATA | WR_NO_ADDRESS) ||
		    (flags & WR_INLINE && w->wr.opcode == IBV_WR_RDMA_READ);
	/* Its arguments are judged by the builder, and reported at once. */
	b->whole |= w->wr.opcode == IBV_WR_BIND_MW;
	w->length = plan_length(&w->wr);
	w->signaled = q->all_signaled || flags & IBV_SEND_SIGNALED;
	w->cuttable = plan_cuttable(q->type, w->wr.opcode, cut_imm);
	w->by_entry = q->ctx->provider->wr_list_unsafe && !(flags & WR_INLINE);
}

/* The pump may run: the builder that calls has read the fields. 0 or ENOMEM. */
COLD static int wait_for_space(struct qp *q)
{
	int err;

	set_open(q, false);
	err = post_make_space(q, q->batch->n);
	set_open(q, true);
	return err;
}

static unsigned int expected_setters(const struct qp *q, enum ibv_wr_opcode op)
{
	if (!wr_takes_data(op))
		return 0;
	if (q->type == IBV_QPT_UD || q->type == IBV_QPT_XRC_SEND)
		return WR_NO_DATA | WR_NO_ADDRESS;
	return WR_NO_DATA;
}

/* The next WR of the batch, for the builder to fill; NULL if the batch has failed. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *x, enum ibv_wr_opcode op)
{
	struct qp *q = qp_near(x);
	struct wr_batch *b = q->batch;
	struct ibv_send_wr wr = {.opcode = op};
	bool full;

	seal(q);
	if (b->err)
		return NULL;
	pthread_mutex_lock(&q->lock); /* the fields are the program's while it is held */
	wr.wr_id = x->wr_id;
	wr.send_flags = (x->wr_flags & ~WR_INTERNAL) | expected_setters(q, op);
	full = sendq_held(q) + b->n >= q->max_wr;
	pthread_mutex_unlock(&q->lock);
	if (unlikely(full) && wait_for_space(q)) {
		b->err = q->ctx->provider->wr_full;
		return NULL;
	}
	b->last = sendq_slot(q, q->wr_head + b->n++);
	memset(b->last, 0, sizeof(*b->last));
	b->last->wr = wr;
	b->last->wr.sg_list = sendq_sges(b->last);
	b->last->recorded = true;
	return &b->last->wr;
}

static void rdma(struct ibv_qp_ex *x, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr,
		 __be32 imm)
{
	struct ibv_send_wr *wr = begin(x, op);

	if (!wr)
		return;
	wr->imm_data = imm;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
}

static void hook_wr_rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	rdma(x, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void hook_wr_rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm)
{
	rdma(x, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void hook_wr_rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	rdma(x, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void hook_wr_send(struct ibv_qp_ex *x)
{
	begin(x, IBV_WR_SEND);
}

static void hook_wr_send_imm(struct ibv_qp_ex *x, __be32 imm)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void hook_wr_send_inv(struct ibv_qp_ex *x, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void hook_wr_local_inv(struct ibv_qp_ex *x, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_LOCAL_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void atomic(struct ibv_qp_ex *x, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr,
		   uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(x, op);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void hook_wr_atomic_cmp_swp(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr,
				   uint64_t compare, uint64_t swap)
{
	atomic(x, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void hook_wr_atomic_fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr,
				     uint64_t add)
{
	atomic(x, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

/* ibv_send_wr has no place for the eight bytes; atomic.swap is free. */
static void hook_wr_atomic_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr,
				 const void *data)
{
	uint64_t value;

	memcpy(&value, data, sizeof(value));
	atomic(x, IBV_WR_ATOMIC_WRITE, rkey, addr, 0, value);
}

static void hook_wr_bind_mw(struct ibv_qp_ex *x, struct ibv_mw *mw, uint32_t rkey,
			    const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

/* ---- setters ---- */

static struct ibv_send_wr *last_of(struct qp *q)
{
	return q->batch->last ? &q->batch->last->wr : NULL;
}

static void fail_batch(struct qp *q)
{
	q->batch->err = q->ctx->provider->wr_invalid;
	q->batch->last = NULL;
}

static void set_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	struct qp *q = qp_near(x);
	struct ibv_send_wr *wr = last_of(q);

	if (!wr)
		return;
	if (n > q->max_sge && n > 1) {
		fail_batch(q);
		return;
	}
	if (n)
		memcpy(wr->sg_list, list, n * sizeof(*list));
	wr->num_sge = (int)n;
	wr->send_flags &= ~(WR_NO_DATA | WR_INLINE);
}

static void hook_wr_set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	set_list(x, n, list);
}

static void hook_wr_set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	set_list(x, 1, &sge);
}

static void hook_wr_set_inline_data_list(struct ibv_qp_ex *x, size_t n,
					 const struct ibv_data_buf *list)
{
	struct qp *q = qp_near(x);
	struct ibv_send_wr *wr = last_of(q);
	size_t sum = 0, i;
	char *to;

	if (!wr)
		return;
	to = sendq_payload(q, q->batch->last);
	for (i = 0; i < n; sum += list[i++].length) {
		if (list[i].length > q->max_inline - sum) {
			fail_batch(q);
			return;
		}
		memcpy(to + sum, list[i].addr, list[i].length);
	}
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)sum};
	wr->num_sge = 1;
	wr->send_flags = (wr->send_flags & ~WR_NO_DATA) | WR_INLINE;
}

static void hook_wr_set_inline_data(struct ibv_qp_ex *x, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	hook_wr_set_inline_data_list(x, 1, &buf);
}

static void hook_wr_set_ud_addr(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = last_of(qp_near(x));

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
	wr->send_flags &= ~WR_NO_ADDRESS;
}

static void hook_wr_set_xrc_srqn(struct ibv_qp_ex *x, uint32_t srqn)
{
	struct ibv_send_wr *wr = last_of(qp_near(x));

	if (!wr)
		return;
	wr->qp_type.xrc.remote_srqn = srqn;
	wr->send_flags &= ~WR_NO_ADDRESS;
}

/* ---- wr_complete ---- */

/* The batch as a list; NULL if there is nothing in it. */
static struct ibv_send_wr *as_list(struct qp *q)
{
	struct ibv_send_wr *next = NULL;
	uint32_t i;

	for (i = q->batch->n; i-- > 0;) {
		struct swr *w = sendq_slot(q, q->wr_head + i);

		w->wr.next = next;
		next = &w->wr;
	}
	return next;
}

/* If it has failed: what the provider makes of an empty batch comes first. */
static int replay_as_it_was(struct qp *q)
{
	int failed = q->batch->err, err;
	struct ibv_send_wr *list = failed ? NULL : as_list(q);

	post_past_queue(q, list);
	err = wr_replay(q, list);
	if (err)
		post_refused(q, list);
	return err ? err : failed;
}

static int enqueue(struct qp *q)
{
	pthread_mutex_lock(&q->lock);
	as_list(q);
	sendq_commit(q, q->batch->n);
	qp_unlock_and_send(q);
	return 0;
}

static bool is_plain(struct qp *q)
{
	bool plain;

	pthread_mutex_lock(&q->lock);
	plain = post_is_plain(q);
	pthread_mutex_unlock(&q->lock);
	return plain;
}

static int post_batch(struct qp *q)
{
	struct wr_batch *b = q->batch;

	if (shim.cfg.cls == RNICE_CLASS_AUTO && b->n && post_stays_watched(q, as_list(q))) {
		count_post(q->activity);
		return replay_as_it_was(q);
	}
	if (is_plain(q))
		return replay_as_it_was(q);
	if (b->err)
		return b->err;
	if (!b->n)
		return 0;
	if (!b->whole)
		return enqueue(q);
	return qp_push_out(q, b->n) ? q->ctx->provider->wr_full : replay_as_it_was(q);
}

static int hook_wr_complete(struct ibv_qp_ex *x)
{
	struct qp *q = qp_near(x);
	int err;

	seal(q);
	set_open(q, false);
	err = post_batch(q);
	end_region(q);
	progress_wake();
	return err;
}

/* ---- QPs that are not managed: one count per batch ---- */

COLD static int sample_wr_complete(struct ibv_qp_ex *x)
{
	struct qp *q = qp_near(x);

	/* The fields hold the last WR's values still. */
	if (q->all_signaled || x->wr_flags & IBV_SEND_SIGNALED)
		post_sample(q, x->wr_id);
	uar_learn(q);
	return q->batch->ops.wr_complete(x);
}

static __attribute__((noinline)) int first_wr_complete(struct ibv_qp_ex *x)
{
	struct qp *q = qp_near(x);

	return post_first(q) ? sample_wr_complete(x) : q->batch->ops.wr_complete(x);
}

static int count_wr_complete(struct ibv_qp_ex *x)
{
	const struct fast *f = fast_look(fast_qps, x);
	int (*complete)(struct ibv_qp_ex *);

	if (unlikely(!f))
		return first_wr_complete(x);
	if (unlikely(count_post(f->activity)))
		return sample_wr_complete(x);
	complete = f->complete;
	return complete(x);
}

/* ---- life ---- */

int wr_prepare(struct qp *q, uint64_t send_ops)
{
	struct wr_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return ENOMEM;
	b->q = q;
	b->send_ops = send_ops;
	pthread_mutex_init(&b->lock, NULL);
	q->batch = b;
	return 0;
}

void wr_patch(struct qp *q)
{
	struct wr_batch *b = q->batch;
	struct ibv_qp_ex *x = b ? b->x : NULL;

	if (!x)
		return;
	pthread_mutex_lock(&q->lock);
#define PATCH(f, hook)                \
	if (x->f && x->f != (hook)) { \
		b->ops.f = x->f;      \
		x->f = hook;          \
	}
#define PATCH_SAME(f) PATCH(f, hook_##f)
	if (!b->managed) {
		PATCH(wr_complete, count_wr_complete);
		fast_del(fast_qps, q->ibv); /* it has the one from before */
	} else {
		WR_FUNCTIONS(PATCH_SAME)
		if (b->send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
			PATCH_SAME(wr_atomic_write)
	}
#undef PATCH_SAME
#undef PATCH
	pthread_mutex_unlock(&q->lock);
}

static void unpatch(struct wr_batch *b)
{
#define RESTORE(f)    \
	if (b->ops.f) \
		b->x->f = b->ops.f;
	WR_FUNCTIONS(RESTORE)
	RESTORE(wr_atomic_write)
#undef RESTORE
}

void wr_attach(struct qp *q)
{
	struct wr_batch *b = q->batch;
	struct ibv_qp_ex *x = b ? real()->ibv_qp_to_qp_ex(q->ibv) : NULL;

	if (!x || !x->wr_start)
		return;
	b->managed = q->may_manage;
	if (!b->managed && q->activity == &q->unseen)
		return; /* nobody asks how often it posts */
	b->x = x;
	wr_patch(q);
	if (!b->managed && !q->uar.door)
		uar_unpatch_wr(q); /* who posts is seen by wr_complete */
	b->next = all_batches;
	b->link = &all_batches;
	if (b->next)
		b->next->link = &b->next;
	all_batches = b;
}

void wr_free(struct qp *q)
{
	struct wr_batch *b = q->batch;

	if (!b)
		return;
	if (b->link)
		*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
	pthread_mutex_destroy(&b->lock);
	free(b);
	q->batch = NULL;
}

void wr_hand_out(struct qp *q)
{
	struct wr_batch *b = q->batch;

	if (!b || !b->x)
		return;
	pthread_mutex_lock(&q->lock);
	unpatch(b);
	b->x = NULL;
	pthread_mutex_unlock(&q->lock);
}

void wr_child(void)
{
	struct wr_batch *b;

	for (b = all_batches; b; b = b->next)
		if (b->x)
			unpatch(b);
	all_batches = NULL;
}

/* ---- modify_qp ---- */

bool wr_hold(struct qp *q)
{
	struct timespec until;

	if (!q->batch || load_relaxed(&q->batch->owner) == (unsigned long)pthread_self())
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += HOLD_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return !pthread_mutex_timedlock(&q->batch->lock, &until);
}
