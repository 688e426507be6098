/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended CQs: ibv_start_poll(), ibv_next_poll(), ibv_end_poll() and the readers of a completion,
 * all of them pointers in struct ibv_cq_ex.
 *
 * A managed one is drained by us, through the provider's own start_poll() and readers, so that no
 * field is lost; what the program may see waits in the soft queue that ibv_poll_cq() is served
 * from, too. A batch of the program's moves from entry to entry of the soft queue: @now is a copy
 * of the entry it looks at.
 *
 * @batch is held from start_poll() to end_poll(), as the provider's lock is: one batch at a time,
 * and no ibv_poll_cq() meanwhile. It comes before every other lock, and the program runs its own
 * code under it, so nobody else waits for it: see take_aside().
 *
 * Of an unmanaged CQ nothing is patched, except while a timed send is under way (sampling).
 */
#include "interpose/shim.h"

#include <errno.h>
#include <stdlib.h>

/* A batch that lasts longer than this is drained behind its back. */
#define PATIENCE_NS 2000000u
/* The fields that a soft entry can hold. */
#define KEPT                                                                                  \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN | \
	 IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

struct cq_ex {
	struct ibv_cq_ex own; /* the provider's pointers; the other members mean nothing */
	bool shared;	      /* the program did not promise to poll from one thread only */
	bool has_batches;     /* the provider's next_poll() works */
	pthread_mutex_t batch;
	struct ibv_wc now;
	struct wc_more now_more;

	/* cq->lock */
	bool open;	       /* the program may be looking at @now */
	uint64_t refused_at;   /* since when somebody would drain but must not; 0: nobody */
	int err;	       /* what start_poll() said instead of ENOENT */
	struct wc_more newest; /* of the entry that was taken off the CQ last */
};

static struct cq *cq_of_ex(struct ibv_cq_ex *p)
{
	return table_near(&shim.cqs, table_ptr_key(p));
}

static struct cq_ex *ex_of(struct ibv_cq_ex *p)
{
	return cq_of_ex(p)->ex;
}

/* ---- taking entries off the CQ; cq->lock held ---- */

static void read_entry(const struct ibv_cq_ex *own, struct ibv_cq_ex *p, struct ibv_wc *wc,
		       struct wc_more *more)
{
	wc->wr_id = p->wr_id;
	wc->status = p->status;
	wc->opcode = own->read_opcode(p);
	wc->vendor_err = own->read_vendor_err(p);
	wc->byte_len = own->read_byte_len(p);
	wc->imm_data = own->read_imm_data(p);
	wc->qp_num = own->read_qp_num(p);
	wc->src_qp = own->read_src_qp(p);
	wc->wc_flags = own->read_wc_flags(p);
	wc->pkey_index = 0;
	wc->slid = (uint16_t)own->read_slid(p);
	wc->sl = own->read_sl(p);
	wc->dlid_path_bits = own->read_dlid_path_bits(p);
	more->ts = own->read_completion_ts ? own->read_completion_ts(p) : 0;
	more->wallclock =
		own->read_completion_wallclock_ns ? own->read_completion_wallclock_ns(p) : 0;
	more->flow_tag = own->read_flow_tag ? own->read_flow_tag(p) : 0;
	more->cvlan = own->read_cvlan ? own->read_cvlan(p) : 0;
}

/* The program's public fields stay as they are: only its own calls may change them. */
static int take(struct cq *cq, struct ibv_wc *wc, struct wc_more *more)
{
	struct ibv_cq_ex *p = (struct ibv_cq_ex *)cq->ibv;
	enum ibv_wc_status status = p->status;
	struct ibv_poll_cq_attr attr = {0};
	struct cq_ex *ex = cq->ex;
	uint64_t wr_id = p->wr_id;
	int n = 0;

	ex->err = 0;
	while (n < RNICE_POLL_BATCH && !ex->err) {
		ex->err = ex->own.start_poll(p, &attr);
		if (ex->err)
			break;
		do {
			read_entry(&ex->own, p, &wc[n], &more[n]);
			n++;
			ex->err =
				n < RNICE_POLL_BATCH && ex->has_batches ? ex->own.next_poll(p) : 0;
		} while (n < RNICE_POLL_BATCH && ex->has_batches && !ex->err);
		ex->own.end_poll(p);
	}
	p->status = status;
	p->wr_id = wr_id;
	return n;
}

/*
 * The program is inside a batch: it may be reading p->status and p->wr_id, which the provider's
 * start_poll() overwrites. Its next call takes what is there. But if it stays away (it may wait for
 * a peer that waits for our chunks), or if an object goes away (@now), ibv_poll_cq() touches no
 * public field; what it does not tell is as it was with the entry before.
 */
static int take_aside(struct cq *cq, struct ibv_wc *wc, struct wc_more *more, bool now)
{
	struct cq_ex *ex = cq->ex;
	int i, n;

	if (!ex->refused_at)
		ex->refused_at = now_ns();
	if (!now && now_ns() - ex->refused_at < PATIENCE_NS)
		return -1;
	n = cq->real_poll(cq->ibv, RNICE_POLL_BATCH, wc);
	for (i = 0; i < n; i++)
		more[i] = ex->newest;
	return n;
}

int cqex_drain(struct cq *cq, bool now)
{
	struct ibv_wc wc[RNICE_POLL_BATCH] = {0};
	struct run run = {.cq = cq};
	struct wc_more more[RNICE_POLL_BATCH];
	int i, n;

	n = cq->ex->open ? take_aside(cq, wc, more, now) : take(cq, wc, more);
	if (n > 0)
		run.now = dev_now(cq->ctx->dev);
	for (i = 0; i < n; i++) {
		cq->ex->newest = more[i];
		complete_wc(&run, &wc[i]);
	}
	complete_end(&run);
	return n;
}

void cqex_stash(const struct cq *cq, uint32_t at)
{
	cq->more[at] = cq->ex->newest;
}

/* ---- polling a managed CQ ---- */

void cqex_enter(struct cq *cq)
{
	if (cq->ex->shared)
		pthread_mutex_lock(&cq->ex->batch);
}

void cqex_leave(struct cq *cq)
{
	if (cq->ex->shared)
		pthread_mutex_unlock(&cq->ex->batch);
}

/* cq->lock held */
static bool pop(struct cq *cq, struct ibv_cq_ex *p)
{
	struct cq_ex *ex = cq->ex;
	uint32_t at = cq->head & cq->mask;

	if (cq->head == cq->tail)
		return false;
	ex->now = cq->ring[at];
	ex->now_more = cq->more[at];
	cq->head++;
	p->status = ex->now.status;
	p->wr_id = ex->now.wr_id;
	return true;
}

static void pump(const struct cq *cq)
{
	if (load_relaxed(&cq->ctx->dev->waiting))
		dev_pump(cq->ctx->dev);
}

/* The program looks at nothing of ours: what others had to leave may make an event. cq->lock held
 */
static void close_entry(struct cq *cq)
{
	cq->ex->open = false;
	if (cq->ex->refused_at)
		cq_drain(cq, UINT32_MAX);
	cq->ex->refused_at = 0;
}

/* The next entry becomes @now; 0, ENOENT, or what the provider says. */
static int advance(struct cq *cq, struct ibv_cq_ex *p)
{
	struct cq_ex *ex = cq->ex;
	int n, err = 0;
	bool got;

	pthread_mutex_lock(&cq->lock);
	store_relaxed(&cq->polls, load_relaxed(&cq->polls) + 1);
	close_entry(cq);
	got = pop(cq, p);
	while (!got) {
		n = cq_drain(cq, RNICE_POLL_BATCH);
		got = pop(cq, p);
		if (n < RNICE_POLL_BATCH)
			break; /* hidden entries alone may have filled a batch */
	}
	if (!got)
		err = ex->err ? ex->err : ENOENT;
	ex->open = got;
	pthread_mutex_unlock(&cq->lock);
	return err;
}

static int hook_start_poll(struct ibv_cq_ex *p, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = cq_of_ex(p);
	int err;

	/* librxe takes any attributes, the others none. */
	if (cq->ex->has_batches && attr->comp_mask)
		return EINVAL;
	cqex_enter(cq);
	err = advance(cq, p);
	if (err)
		cqex_leave(cq);
	pump(cq);
	return err;
}

static int hook_next_poll(struct ibv_cq_ex *p)
{
	struct cq *cq = cq_of_ex(p);
	int err = advance(cq, p);

	pump(cq);
	return err;
}

static void hook_end_poll(struct ibv_cq_ex *p)
{
	struct cq *cq = cq_of_ex(p);

	pthread_mutex_lock(&cq->lock);
	close_entry(cq);
	pthread_mutex_unlock(&cq->lock);
	cqex_leave(cq);
	pump(cq);
}

/* ---- the readers: type, name, the wc_flags that ask for it, where it is in a soft entry ---- */

#define READERS(X)                                                                          \
	X(enum ibv_wc_opcode, opcode, 0, now.opcode)                                        \
	X(uint32_t, vendor_err, 0, now.vendor_err)                                          \
	X(unsigned int, wc_flags, 0, now.wc_flags)                                          \
	X(uint32_t, byte_len, IBV_WC_EX_WITH_BYTE_LEN, now.byte_len)                        \
	X(__be32, imm_data, IBV_WC_EX_WITH_IMM, now.imm_data)                               \
	X(uint32_t, qp_num, IBV_WC_EX_WITH_QP_NUM, now.qp_num)                              \
	X(uint32_t, src_qp, IBV_WC_EX_WITH_SRC_QP, now.src_qp)                              \
	X(uint32_t, slid, IBV_WC_EX_WITH_SLID, now.slid)                                    \
	X(uint8_t, sl, IBV_WC_EX_WITH_SL, now.sl)                                           \
	X(uint8_t, dlid_path_bits, IBV_WC_EX_WITH_DLID_PATH_BITS, now.dlid_path_bits)       \
	X(uint64_t, completion_ts, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, now_more.ts)        \
	X(uint64_t, completion_wallclock_ns, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, \
	  now_more.wallclock)                                                               \
	X(uint16_t, cvlan, IBV_WC_EX_WITH_CVLAN, now_more.cvlan)                            \
	X(uint32_t, flow_tag, IBV_WC_EX_WITH_FLOW_TAG, now_more.flow_tag)

#define X(type, name, flag, field)                        \
	static type hook_read_##name(struct ibv_cq_ex *p) \
	{                                                 \
		return ex_of(p)->field;                   \
	}
READERS(X)
#undef X

/* As the provider would: a field that the program did not ask for has no reader. */
static void patch(struct cq_ex *ex, struct ibv_cq_ex *p, uint64_t asked)
{
	p->start_poll = hook_start_poll;
	p->next_poll = hook_next_poll;
	p->end_poll = hook_end_poll;
#define X(type, name, flag, field)     \
	if ((flag) & ~asked)           \
		p->read_##name = NULL; \
	else if (ex->own.read_##name)  \
		p->read_##name = hook_read_##name;
	READERS(X)
#undef X
}

static void unpatch(const struct cq_ex *ex, struct ibv_cq_ex *p)
{
	p->start_poll = ex->own.start_poll;
	p->next_poll = ex->own.next_poll;
	p->end_poll = ex->own.end_poll;
#define X(type, name, flag, field) p->read_##name = ex->own.read_##name;
	READERS(X)
#undef X
}

/* ---- a timed send of an unmanaged CQ ---- */

/* Other threads may be calling either of what stands there before and after. */
static void point_to(struct ibv_cq_ex *p, __typeof__(p->start_poll) start,
		     __typeof__(p->next_poll) next)
{
	__atomic_store_n(&p->start_poll, start, __ATOMIC_RELAXED);
	__atomic_store_n(&p->next_poll, next, __ATOMIC_RELAXED);
}

static void look(struct cq *cq, struct ibv_cq_ex *p)
{
	const struct ibv_cq_ex *own = &cq->ex->own;

	if (load_relaxed(&cq->slow)) {
		if (p->wr_id != load_relaxed(&cq->sample_wr_id) ||
		    (own->read_qp_num && own->read_qp_num(p) != load_relaxed(&cq->sample_qpn)) ||
		    own->read_opcode(p) & IBV_WC_RECV)
			return;
		cq_sampled(cq, p->status);
	}
	point_to(p, own->start_poll, own->next_poll);
}

static int timed_start_poll(struct ibv_cq_ex *p, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = cq_of_ex(p);
	int err = cq->ex->own.start_poll(p, attr);

	if (!err)
		look(cq, p);
	return err;
}

static int timed_next_poll(struct ibv_cq_ex *p)
{
	struct cq *cq = cq_of_ex(p);
	int err = cq->ex->own.next_poll(p);

	if (!err)
		look(cq, p);
	return err;
}

void cqex_watch(struct cq *cq)
{
	struct ibv_cq_ex *p = (struct ibv_cq_ex *)cq->ibv;

	point_to(p, timed_start_poll, timed_next_poll);
}

/* ---- create and destroy ---- */

bool cqex_can_keep(const struct ibv_cq_init_attr_ex *attr)
{
	return !(attr->wc_flags & ~(uint64_t)KEPT) &&
	       !(attr->comp_mask &
		 ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD));
}

static bool reads_all(const struct ibv_cq_ex *p)
{
	return p->read_byte_len && p->read_imm_data && p->read_qp_num && p->read_src_qp &&
	       p->read_slid && p->read_sl && p->read_dlid_path_bits;
}

static bool single_threaded(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	       attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
}

/*
 * A managed CQ is made with room for hidden completions, with all that it takes to tell whose a
 * completion is, and with the provider's locks: the progress thread polls it as well. In place, as
 * the attributes grow with rdma-core.
 */
static struct ibv_cq_ex *make_managed(struct cq *cq, struct ibv_cq_init_attr_ex *attr,
				      struct ibv_cq_ex *(*make)(void *), void *arg)
{
	struct ibv_cq_init_attr_ex asked = *attr;
	struct ibv_cq_ex *p;

	cq->spare = cq_spare(cq, (int)attr->cqe);
	store_relaxed(&cq->room, cq->spare);
	attr->cqe += (uint32_t)cq->spare;
	attr->wc_flags |= IBV_WC_STANDARD_FLAGS;
	if (single_threaded(attr))
		attr->flags &= ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	p = make(arg);
	*attr = asked;
	return p;
}

struct cq_ex *cqex_new(const struct cq *cq, const struct ibv_cq_init_attr_ex *attr)
{
	struct cq_ex *ex = calloc(1, sizeof(*ex));

	if (!ex)
		return NULL;
	pthread_mutex_init(&ex->batch, NULL);
	ex->has_batches = !cq->ctx->provider->breaks_next_poll;
	ex->shared = !single_threaded(attr);
	return ex;
}

struct ibv_cq_ex *cqex_create(struct cq *cq, struct ibv_cq_init_attr_ex *attr,
			      struct ibv_cq_ex *(*make)(void *), void *arg)
{
	struct ibv_cq_ex *p = NULL;

	if (cq->managed)
		p = make_managed(cq, attr, make, arg);
	if (!p || !reads_all(p))
		cq->managed = false;
	if (!p)
		p = make(arg);
	if (!p)
		return NULL;
	cq->ex->own = *p;
	if (cq->managed)
		patch(cq->ex, p, attr->wc_flags);
	return p;
}

void cqex_free(struct cq *cq, bool abandoned)
{
	if (!cq->ex)
		return;
	if (abandoned)
		unpatch(cq->ex, (struct ibv_cq_ex *)cq->ibv);
	pthread_mutex_destroy(&cq->ex->batch);
	free(cq->ex);
}
