/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shim's state beside the verbs objects of the program, and who may touch it when.
 *
 * Locks, in the order in which they may be taken:
 *
 *	region -> batch -> registry -> cq->lock -> dev->pump_lock -> qp->lock
 *					-> { dev->list_lock, channel->lock }
 *
 *	region		posting to a QP made for ibv_wr_*, from its wr_start on; see wr.h
 *	batch		the program polls an extended CQ, or is between start_poll and end_poll
 *			(it may also enter a region there: we take neither inside the other)
 *	registry	objects come and go; the progress thread holds it while it looks at them
 *	cq->lock	polling the real CQ, sorting what came, the soft queue in front of it
 *	dev->pump_lock	who works off the queues now; taken with trylock on the data path, there
 *			also with the qp->lock of the QP that is to send
 *	qp->lock	the software send queue of one QP, and posting to its real SQ while managed
 *	list_lock	the list of QPs that wait for their turn
 *	channel->lock	events that the program has not fetched yet
 *
 * The locks of doorbell registers and of QPs that ring them come last: interpose/uar.h.
 *
 * A bypass QP takes no lock at all.
 */
#ifndef RNICE_SHIM_H
#define RNICE_SHIM_H

#include "config/config.h"
#include "interpose/log.h"
#include "interpose/plan.h"
#include "interpose/provider.h"
#include "interpose/real.h"
#include "interpose/table.h"
#include "interpose/uar.h"
#include "scheduler/port.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* Ours alone: without this, every look at `shim` would go through the GOT. */
#pragma GCC visibility push(hidden)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((cold, noinline))

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)

/*
 * Hidden completions a CQ has room for beyond what the program asked for: as many again, within
 * limits. Programs see it in cq->cqe, and some post as many WRs as that.
 */
#define RNICE_CQ_SPARE_MIN 4
#define RNICE_CQ_SPARE 128
/* A managed SQ holds at least this many chunks, however small the program's own queue is. */
#define RNICE_SQ_MIN 16
/* Completions that are taken off a CQ at once. */
#define RNICE_POLL_BATCH 32
/* Chunks that go to the NIC with one doorbell. */
#define RNICE_CHAIN 16
/* One send in this many is timed. */
#define RNICE_SAMPLE_EVERY 64 /* count_post() masks: a power of two, 256 at most */

struct ctx;
struct cq;
struct cq_ex;
struct qp;
struct wr_batch;

/* One device as this process sees it; shared by all its contexts. Never freed. */
struct dev {
	struct dev *next;
	char name[RNICE_DEVICE_NAME];
	struct rnice_port *port;
	_Atomic uint64_t now; /* ns; the last time that dev_now() read */
	pthread_mutex_t pump_lock;
	bool backlogged;  /* as the port was told; pump_lock */
	atomic_int again; /* somebody wants another round of the pump */
	pthread_mutex_t list_lock;
	struct qp *first, *last; /* QPs that wait for their turn */
	atomic_int waiting;
};

struct ctx {
	struct ibv_context *ibv;
	struct dev *dev; /* NULL: nothing of this context is managed or counted */
	const struct provider *provider;
	struct ibv_context_ops ops; /* the provider's own */
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	struct ibv_wq *(*create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);
	int (*destroy_wq)(struct ibv_wq *);
	struct ibv_qp *(*open_qp)(struct ibv_context *, struct ibv_qp_open_attr *);
	struct table qpns; /* QP number -> struct qp of QPs that may be managed */
	struct ibv_comp_channel *hidden_made;
	struct channel *hidden; /* for CQs that the program created without a channel */
	struct qp *qps;
	struct cq *cqs;	    /* both under registry */
	struct uar *uar;    /* NULL: not mlx5 */
	unsigned int forks; /* shim.forks when it was opened */
	int max_cqe;
};

/*
 * A completion channel of the program (or the hidden one of a context, pub == NULL).
 *
 * The program sees an epoll fd in which the real fd is a member until the first QP behind this
 * channel is managed. From then on (taken) the progress thread reads the real one, and the program
 * is woken by an eventfd, once for each event that concerns a completion it can see.
 */
struct channel {
	struct channel *next;
	struct ibv_comp_channel *pub;
	struct ibv_comp_channel real; /* what the provider is given */
	struct ctx *ctx;
	int ep, efd;
	pthread_mutex_t lock;
	pthread_cond_t acked;
	bool taken;
	struct cq *first, *last; /* CQs with events to be fetched */
};

/* What a completion of an extended CQ has beyond struct ibv_wc. */
struct wc_more {
	uint64_t ts, wallclock;
	uint32_t flow_tag;
	uint16_t cvlan;
};

struct cq {
	/* read on every poll; of unmanaged CQs there is a copy in fast.h */
	struct ibv_cq *ibv;
	int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);
	_Atomic bool slow;	   /* managed, or a timed send is under way */
	bool managed;		   /* for life: a managed QP may use this CQ */
	_Atomic uint32_t polls;	   /* calls of the program, for the progress thread to see */
	_Atomic uint32_t awaiting; /* QPs with WRs of ours in the NIC that may complete here */
	_Atomic int32_t room;	   /* hidden completions that still fit */

	pthread_mutex_t lock;
	/* For one poll; zeroes between: providers leave fields alone that do not apply. */
	struct ibv_wc taken[RNICE_POLL_BATCH];
	struct ibv_wc *ring;  /* soft queue: completions taken off the real CQ, for the program */
	struct wc_more *more; /* beside it, if the CQ is an extended one */
	struct cq_ex *ex;     /* made by ibv_create_cq_ex() or a vendor's creator */
	uint32_t head, tail, mask;
	uint32_t reserved; /* ring entries promised to flushes of attached QPs */
	uint64_t looked;   /* before the last poll that left nothing in it, on a paced port; ns */
	struct ctx *ctx;
	struct cq *next;	   /* all managed CQs, under registry */
	struct cq *ctx_next;	   /* in ctx->cqs, under registry */
	struct qp *qps;		   /* managed QPs that send to it */
	_Atomic bool flush_wanted; /* one of them failed outside a completion */
	int asked;		 /* cqe the program asked for; draining stops there: it must poll */
	_Atomic int spare;	 /* and what was added to it */
	_Atomic int users;	 /* QPs attached, once per role, and WQs */
	_Atomic bool handed_out; /* its memory is the program's (direct.c): not ours to drain */
	uint32_t seen_polls;	 /* progress thread's */
	bool hw_armed;		 /* an event from the NIC will come */

	/* events, under channel->lock */
	struct channel *ch; /* never NULL for a managed CQ; may be ctx->hidden */
	struct cq *ev_next;
	uint32_t ev_pending; /* made, not fetched */
	uint64_t ev_fetched, ev_acked;
	_Atomic bool app_armed; /* written under ch->lock; channel_seen() reads it without */
	bool app_solicited;
	bool seen_since_arm;
	bool muted; /* is being destroyed: no more events */

	/* bypass sampling */
	_Atomic uint64_t sample_t0;
	_Atomic uint64_t sample_wr_id; /* of the last poster that began one: they share the CQ */
	_Atomic uint32_t sample_qpn;
};

enum qp_mode {
	QP_BYPASS,
	QP_NEW,	    /* bypass, before its first post */
	QP_WATCHED, /* class auto, small messages now: bypass, but classified on every post */
	QP_MANAGED,
};

/* What one WR in the NIC stands for. */
struct chunk {
	uint64_t bytes;	  /* accounted at the port: this piece and the loose ones before it */
	uint64_t length;  /* of this piece */
	uint64_t posted;  /* ns */
	uint64_t natives; /* q->nat_head before it */
	bool last;	  /* of its WR */
	bool signaled;
	bool room; /* holds a place in cq->room */
};

/* What chunks of one QP held. */
struct returned {
	uint64_t window, lost; /* bytes at the port: of chunks that went well, of others */
	uint64_t since;	       /* when one of @window was posted */
	uint64_t bytes;	       /* that arrived */
	uint32_t chunks, rooms, signaled;
};

struct qp {
	/* read on every post; of bypass QPs there is a copy in fast.h */
	struct ibv_qp *ibv;
	int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	uint64_t *activity; /* in the segment; a plain counter with one writer at a time */
	_Atomic int mode;   /* enum qp_mode */

	uint64_t unseen;	/* *@activity of a QP whose posts tell nobody anything */
	struct wr_batch *batch; /* NULL: not made for ibv_wr_* */
	struct ctx *ctx;
	struct cq *scq, *rcq;
	uint32_t qp_num; /* also when @ibv is gone */
	int counted_as;	 /* enum rnice_uncontrolled + 1; 0: none */
	bool may_manage;
	bool all_signaled; /* sq_sig_all: stays as the program set it, each chunk then completes */
	bool hide_depth;   /* the real SQ is deeper than the program asked for */
	enum ibv_qp_type type;
	uint32_t max_sge, max_inline, max_wr;
	uint32_t ewma; /* class auto: 16 * average bytes per WR */

	pthread_mutex_t lock;
	_Atomic int state;  /* enum ibv_qp_state, as far as modify_qp told */
	uint64_t failed_at; /* ns; of the last error seen */
	bool failed;	    /* an error was seen: nothing more goes to the NIC until RESET */
	/*
	 * Slots hold WRs, chunks what went to the NIC. Counters only grow; & mask gives the index.
	 *
	 *	wr_done <= wr_cut <= wr_head	completed | (partly) in the NIC | still to be cut
	 */
	char *slots;
	size_t stride;
	uint64_t wr_done, wr_cut, wr_head;
	uint32_t wr_mask;
	struct chunk *chunks;
	uint64_t ck_done, ck_head;
	uint32_t ck_mask, ck_max;
	struct ibv_sge *chain_sges; /* scratch of issue(): RNICE_CHAIN times a WR's */
	uint64_t id_base;	    /* wr_id of chunk n is id_base + n */
	uint64_t loose_bytes;	    /* in the NIC, unsignaled and not accounted yet */
	uint32_t loose;		    /* chunks since the last signaled one */
	int64_t work;	 /* WRs still to be cut, and signaled chunks in the NIC; sendq_work() */
	int32_t awaited; /* WRs in the NIC that may complete at scq; sendq_await() */
	uint32_t new_wrs, new_chunks;	/* not counted at the port yet: sendq_settle() does */
	int64_t new_queued;		/* bytes; sendq_count_queued() */
	enum ibv_wc_status fail_status; /* of the first WR to be flushed; 0: as the rest */
	/*
	 * What went to the real SQ past the queue, of QPs made for ibv_wr_* or with a hidden depth:
	 * WRs, and for each signaled one the count up to it (& nat_mask). NULL: not counted.
	 */
	uint64_t nat_head, nat_done, sig_head, sig_done;
	uint64_t *nat_upto;
	uint32_t nat_mask;
	uint64_t nat_at;     /* 1 + the number of the chunk behind the last of them; 0: none */
	_Atomic bool dying;  /* being destroyed: nothing is posted; written under registry */
	struct qp *cq_next;  /* in scq->qps, under scq->lock */
	struct qp *ctx_next; /* in ctx->qps, under registry */

	struct uar_qp uar;

	/* under dev->list_lock */
	struct qp *wait_next;
	bool listed;
};

struct shim {
	struct rnice_config cfg;
	bool active;   /* there is a segment and the policy is not off */
	bool managing; /* QPs may be managed */
	struct rnice_segment *seg;
	struct rnice_proc *proc;
	struct table ctxs, cqs, qps, channels;
	struct table devx; /* DevX object -> struct dev it is counted at */
	pthread_mutex_t registry;
	struct cq *all_cqs;
	struct channel *all_channels;
	_Atomic(struct dev *) devs; /* grows only; read without a lock */
	unsigned int forks;	    /* between the first process and this one */
	_Atomic int64_t busy_qps;   /* QPs whose work is not 0 */
};

extern struct shim shim;

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t dev_now(struct dev *dev)
{
	uint64_t now = now_ns();

	/* Else another thread was faster. If it is between these two: until the next reading. */
	if (likely(now > load_relaxed(&dev->now)))
		store_relaxed(&dev->now, now);
	return now;
}

/* state.c */
void shim_start(void); /* at the first sign of verbs in this process; cheap when done */
struct dev *shim_dev(const char *name); /* NULL: no room in the segment; said once */

/* context.c */
struct ctx *ctx_attach(struct ibv_context *ibv); /* patches it; NULL: stays as it is */
static inline struct ctx *ctx_of(struct ibv_context *ibv)
{
	return table_get(&shim.ctxs, table_ptr_key(ibv));
}

/* cq.c */
static inline struct cq *cq_of(struct ibv_cq *ibv)
{
	return ibv ? table_get(&shim.cqs, table_ptr_key(ibv)) : NULL;
}
int hook_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc);
int hook_req_notify(struct ibv_cq *ibv, int solicited_only);
struct ibv_cq_ex *hook_create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr);
/*
 * @make creates the CQ by @attr, which it sees with other values than the program gave. @opaque: it
 * may be read in ways that pass us by, so it is not managed.
 */
struct ibv_cq_ex *cq_create_extended(struct ctx *ctx, struct ibv_cq_init_attr_ex *attr, bool opaque,
				     struct ibv_cq_ex *(*make)(void *), void *arg);
/* Hidden capacity to ask for beyond @cqe, if the device has it. */
int cq_spare(const struct cq *cq, int cqe);
/* A timed send completed. */
void cq_sampled(struct cq *cq, enum ibv_wc_status status);
/* Room for a QP's flushes; 0 or ENOMEM. */
int cq_reserve(struct cq *cq, uint32_t entries);
/* The soft queue holds at least @entries from now on; 0 or ENOMEM. cq->lock held */
int cq_ring_resize(struct cq *cq, uint32_t entries);
static inline uint32_t cq_ring_count(const struct cq *cq) /* cq->lock held */
{
	return cq->tail - cq->head;
}
void cq_unreserve(struct cq *cq, uint32_t entries);
void cq_push(struct cq *cq, const struct ibv_wc *wc); /* cq->lock held */
/* Take what the real CQ has, @max completions at most; how many. cq->lock held. */
int cq_drain(struct cq *cq, uint32_t max);
/* All of it, even if the program is between start_poll and end_poll. cq->lock held */
void cq_drain_all(struct cq *cq);
/* The program reads the CQ's memory itself from now on; registry held. */
void cq_hand_out(struct cq *cq);
void cq_abandon(struct cq *cq);			   /* its context is closed; registry held */
void cq_forget_qp(struct cq *cq, uint32_t qp_num); /* cq->lock held */

/* cqex.c */
struct cq_ex *cqex_new(const struct cq *cq, const struct ibv_cq_init_attr_ex *attr); /* or ENOMEM */
bool cqex_can_keep(const struct ibv_cq_init_attr_ex *attr); /* all that its completions have */
/* May find that the CQ cannot be managed after all. NULL with errno */
struct ibv_cq_ex *cqex_create(struct cq *cq, struct ibv_cq_init_attr_ex *attr,
			      struct ibv_cq_ex *(*make)(void *), void *arg);
void cqex_free(struct cq *cq, bool abandoned); /* @abandoned: the program still has it */
/*
 * Take a batch off the real CQ; how many. While the program looks at an entry of its own batch
 * that must wait, unless it is @now. cq->lock held
 */
int cqex_drain(struct cq *cq, bool now);
void cqex_stash(const struct cq *cq, uint32_t at); /* more[at] of what is pushed; cq->lock held */
void cqex_enter(struct cq *cq);			   /* ibv_poll_cq() waits for the end of a batch */
void cqex_leave(struct cq *cq);
void cqex_watch(struct cq *cq); /* unmanaged: a timed send is under way */

/* channel.c */
struct channel *channel_of(struct ibv_comp_channel *pub);
struct channel *channel_hidden(struct ctx *ctx); /* NULL: none to be had */
void channel_take(struct channel *ch);
void channel_adopt(struct channel *ch, struct ibv_cq *cq); /* after a create with &ch->real */
void channel_event(struct channel *ch, struct cq *cq);	   /* the program shall get one */
void channel_seen(struct cq *cq, const struct ibv_wc *wc); /* a completion became visible */
/* Waits until the program acked what it fetched; no event from then on. How many were left. */
uint32_t channel_mute(struct cq *cq);
void channel_unmute(struct cq *cq, uint32_t events);
void channel_close_hidden(struct ctx *ctx);
int channel_arm_for_program(struct cq *cq, int solicited_only);
void channel_arm(struct cq *cq); /* for the progress thread; cq->lock held */
/* Is the progress thread in charge of its events? *@armed: the program waits for one. */
bool channel_needs_us(struct cq *cq, bool *armed);
int channel_fetch_real(struct channel *ch, struct cq **cq); /* progress thread; EAGAIN */

/* qp.c */
static inline struct qp *qp_of(struct ibv_qp *ibv)
{
	return table_get(&shim.qps, table_ptr_key(ibv));
}
static inline struct qp *qp_near(const void *ibv) /* the same, inline as a rule */
{
	return table_near(&shim.qps, table_ptr_key(ibv));
}
struct ibv_qp *hook_create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *attr);
/* A QP that did not come in through ibv_create_qp(): counted as @why, never managed. */
void qp_adopt(struct ibv_qp *ibv, const struct ibv_qp_init_attr *attr, enum rnice_uncontrolled why);
/* The program writes to the QP's memory itself from now on; registry held. */
void qp_hand_out(struct qp *q);
/*
 * @make creates the QP by @attr, in which max_send_wr may be larger meanwhile. @why is what keeps
 * it from being managed, as far as the caller knows; RNICE_UNC_KINDS: nothing. @movable: it may be
 * placed on a doorbell register of our choice.
 */
struct ibv_qp *qp_create_extended(struct ctx *ctx, struct ibv_qp_init_attr_ex *attr,
				  enum rnice_uncontrolled why, bool movable,
				  struct ibv_qp *(*make)(void *), void *arg);
void qp_forget(struct qp *q); /* the provider's is gone; registry held */
int hook_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* qp_state.c */
void qp_abandon(struct qp *q); /* its context is closed; registry held */

/* receivers.c */
struct ibv_wq *wq_made(struct ibv_wq *wq); /* NULL: it was not */
struct ibv_wq *hook_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int hook_destroy_wq(struct ibv_wq *wq);
struct ibv_qp *hook_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/* post.c */
int hook_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* Remember the WR about to be posted, for the poll that will see it. */
void post_sample(struct qp *q, uint64_t wr_id);
/*
 * Nothing is cut or held back before RTS or after an error, where the provider decides what a post
 * means; but what is queued stays ahead. q->lock held.
 */
bool post_is_plain(struct qp *q);
/* Class auto: classify the QP by @wr, too. True if it is on the bypass then. */
bool post_stays_watched(struct qp *q, const struct ibv_send_wr *wr);
/* @wr is about to go to the provider past the queue; and it was refused from there on. */
void post_past_queue(struct qp *q, const struct ibv_send_wr *wr);
void post_refused(struct qp *q, const struct ibv_send_wr *wr);
/* Room for one WR behind the queue and @more others: look whether the NIC is further. 0, ENOMEM. */
int post_make_space(struct qp *q, uint32_t more);

/* The first post of a bypass QP, or its entry of fast.h is another's: counted; true: a sample. */
bool post_first(struct qp *q);

/*
 * One writer at a time: threads that share a QP may lose a count, which only says "active". True
 * for one post in RNICE_SAMPLE_EVERY.
 */
static inline bool count_post(uint64_t *activity)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	bool sampled; /* half of the instructions that compilers make of the other one */

	__asm__ volatile("addq $1, %0\n\ttestb %2, %0"
			 : "+m"(*activity), "=@ccz"(sampled)
			 : "i"(RNICE_SAMPLE_EVERY - 1));
	return sampled;
#else
	uint64_t n = __atomic_load_n(activity, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(activity, n, __ATOMIC_RELAXED);
	return n % RNICE_SAMPLE_EVERY == 0;
#endif
}

/* wr.c, wr_replay.c */

/* What can be recorded, of IBV_QP_EX_WITH_*. */
#define WR_RECORDED                                                                             \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |     \
	 IBV_QP_EX_WITH_ATOMIC_WRITE)

int wr_prepare(struct qp *q, uint64_t send_ops); /* 0 or ENOMEM */
void wr_attach(struct qp *q);			 /* the QP was made; registry held */
void wr_patch(struct qp *q);	/* again, for providers that change their functions */
void wr_free(struct qp *q);	/* registry held */
void wr_hand_out(struct qp *q); /* the provider's functions for good; nothing is queued */
void wr_child(void);		/* after fork: gives inherited QPs back to the provider */
/* Keep posters out while the provider changes its functions. True: wr_leave() must follow. */
bool wr_hold(struct qp *q);
void wr_enter(struct qp *q); /* like a region, for what else posts to the QP */
void wr_leave(struct qp *q);
/* The program is between start and complete: nothing is replayed now. q->lock held. */
bool wr_in_region(struct qp *q, uint64_t now);
/* A chain of recorded WRs as real_post() would take it. q->lock held. */
int wr_post_chain(struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* sendq.c; qp->lock held unless said otherwise */

/* Something goes to the NIC past the queue. */
static inline void sendq_passed(struct qp *q)
{
	q->nat_at = q->ck_head + 1;
}
int sendq_init(struct qp *q, const struct ibv_qp_cap *cap, uint32_t real_depth);
void sendq_free(struct qp *q);
static inline struct swr *sendq_slot(const struct qp *q, uint64_t n)
{
	return (struct swr *)(q->slots + (n & q->wr_mask) * q->stride);
}
/* One at least: inline data of ibv_wr_* is described by an SGE, whatever max_sge is. */
static inline size_t sendq_sge_places(const struct qp *q)
{
	return q->max_sge ? q->max_sge : 1;
}
static inline bool sendq_signals(const struct qp *q, const struct ibv_send_wr *wr)
{
	return q->all_signaled || wr->send_flags & IBV_SEND_SIGNALED;
}
static inline bool sendq_sges_fit(const struct qp *q, const struct ibv_send_wr *wr)
{
	return wr->num_sge >= 0 && (uint32_t)wr->num_sge <= q->max_sge;
}
int sendq_capture(struct qp *q, const struct ibv_send_wr *wr);
static inline struct ibv_sge *sendq_sges(struct swr *w) /* at least one */
{
	return (struct ibv_sge *)(w + 1);
}
char *sendq_payload(const struct qp *q, struct swr *w); /* q->max_inline bytes */
void sendq_commit(struct qp *q, uint32_t n); /* the @n slots behind the head are filled */
/*
 * Posted past the queue to a QP made for ibv_wr_*, or about to be; refused after all; and one of
 * the signaled ones is done.
 */
void sendq_native(struct qp *q, const struct ibv_send_wr *wr);
void sendq_native_undo(struct qp *q, const struct ibv_send_wr *wr);
void sendq_native_done(struct qp *q);
/*
 * What a QP has under way is counted in the QP. Pollers and the progress thread look at one counter
 * of QPs each, which changes only when a QP begins or ends to have any: one that is busy all the
 * time leaves it alone. seq_cst: see progress_wake() and poll_direct().
 */
static inline void sendq_work(struct qp *q, int64_t change)
{
	bool was = q->work;

	q->work += change;
	if (was && !q->work)
		atomic_fetch_sub(&shim.busy_qps, 1);
	else if (!was && q->work)
		atomic_fetch_add(&shim.busy_qps, 1);
}
static inline void sendq_await(struct qp *q, int32_t change)
{
	bool was = q->awaited;

	q->awaited += change;
	if (was && !q->awaited)
		atomic_fetch_sub(&q->scq->awaiting, 1);
	else if (!was && q->awaited)
		atomic_fetch_add(&q->scq->awaiting, 1);
}
static inline uint64_t sendq_inside(const struct qp *q) /* WRs in the real SQ */
{
	return q->ck_head - q->ck_done + q->nat_head - q->nat_done;
}
/* A signaled chunk is in the NIC: a completion will tell of it. */
static inline bool sendq_has_signaled(const struct qp *q)
{
	return q->ck_head - q->ck_done > q->loose;
}
/*
 * WRs that the program's own queue would hold. Of what went past ours the real SQ keeps count,
 * unless it is deeper than the program knows; for a failed QP nobody does.
 */
static inline uint64_t sendq_held(const struct qp *q)
{
	uint64_t past = q->hide_depth && !q->failed ? q->nat_head - q->nat_done : 0;

	return q->wr_head - q->wr_done + past;
}
/*
 * @c left the NIC, or never got there: what it holds of the window, the CQ and the books goes to
 * @r, which starts as zeroes, and sendq_settle() gives it back.
 */
void sendq_give_back(struct qp *q, const struct chunk *c, bool ok, uint64_t now,
		     struct returned *r);
void sendq_settle(struct qp *q, struct returned *r, uint64_t now);
void sendq_count_queued(struct qp *q);	/* after captures and issues, at the port */
void sendq_forget_queued(struct qp *q); /* what is still to be cut never will be */
void sendq_reset(struct qp *q);		/* forget everything, what is in the NIC included */

/* issue.c */
void dev_enlist(struct dev *dev, struct qp *q); /* wants to send */
void dev_delist(struct dev *dev, struct qp *q); /* pump_lock held */
void dev_pump(struct dev *dev);
/* Its queue goes to the NIC, as far as it may; q->lock held before, and dropped. */
void qp_unlock_and_send(struct qp *q);
/*
 * One WR that nothing waits before, that need not be cut and that may go now: into the NIC, without
 * being captured. False: it must be queued. @err: what the provider says. q->lock held
 */
bool qp_send_straight(struct qp *q, const struct ibv_send_wr *wr, int *err);
/*
 * Put the whole queue into the NIC whatever the window says, and leave room for @more WRs in the
 * real SQ if that can be; no lock held but the batch's. 0, or ETIMEDOUT.
 */
int qp_push_out(struct qp *q, uint32_t more);

/* complete.c; cq->lock held */
/*
 * Completions are sorted in runs: the lock of their QP is kept from one to the next of the same QP,
 * and what they give back is settled when the QP changes, or the run ends.
 */
struct run {
	struct cq *cq;
	uint64_t now;
	struct qp *q; /* locked; NULL: none */
	bool more;    /* @q has more to send */
	struct returned returned;
};
void complete_wc(struct run *run, const struct ibv_wc *wc);
void complete_end(struct run *run);
/* The QP is in the error state: nothing more goes to the NIC. q->lock held. */
void complete_failed(struct qp *q, uint64_t now);
/*
 * Flush what a failed QP has queued, once nothing of it is in the NIC. While unsignaled chunks may
 * still be there, scq->flush_wanted stays set, so that the next poll asks again. q->lock held.
 */
void complete_tail(struct qp *q, uint64_t now);

/* progress.c */
void progress_start(void);
void progress_wake(void);    /* there is work; cheap when the thread is awake */
bool progress_watch(int fd); /* a real channel fd to wait on */
void progress_unwatch(int fd);
void progress_child(void); /* after fork: there is no thread here */

#pragma GCC visibility pop

#endif
