/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doorbell registers of mlx5: on which one a new QP is placed, and which threads ring it.
 *
 * A QP is placed by creating it on a parent domain of ours with a thread domain in it. libmlx5
 * then leaves out the QP's own locks and that of the register; a second thread inside makes it
 * abort. The exclusion is ours from then on:
 *
 *	door->lock	the register: around a whole post_send or bind_mw, and around wr_complete
 *	uar.sq		of a QP made for ibv_wr_*: from wr_start to wr_complete or wr_abort, and
 *			around its post_send; taken before door->lock
 *	uar.rq		around post_recv
 *
 * That is where libmlx5 holds its own locks, but for post_send, which also builds the WRs inside
 * of one call. A thread between wr_start and wr_complete may post to other QPs of the same door.
 *
 * CQs and SRQs are never made on our domains, and keep their locks. Other locks of the provider
 * depend on the QP's: only mlx5dv_qp_cancel_posted_send_wrs(), whose QPs are left to the driver,
 * and the transition of raw packet QPs, likewise.
 *
 * A parent domain lives exactly as long as its QP, so nothing of ours is in the way of the
 * program's ibv_dealloc_pd(). A door is kept until its context is closed: libmlx5 does not give
 * registers back earlier either.
 */
#ifndef RNICE_INTERPOSE_UAR_H
#define RNICE_INTERPOSE_UAR_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct ctx;
struct qp;
struct door;
struct reg;
struct uar;
struct mlx5dv_qp_init_attr;

/* The part of struct qp. */
struct uar_qp {
	struct door *door;	  /* NULL: where the driver put it */
	struct reg *reg;	  /* what it rings; NULL: not an mlx5 QP */
	_Atomic uint64_t threads; /* seen to post */
	_Atomic uint8_t maker;	  /* the number of the thread that made it */
	_Atomic uint32_t starts;  /* of wr_start, to sample; threads may lose a count */
	_Atomic uint32_t sq, rq;
	bool placed;		    /* in the plan's books */
	struct ibv_pd *parent, *pd; /* created on; as the program knows it */
	void (*wr_start)(struct ibv_qp_ex *);
	int (*wr_complete)(struct ibv_qp_ex *);
	void (*wr_abort)(struct ibv_qp_ex *);
};

/* All but the data path: registry held. */

/* Nothing happens for other providers. Hooks its thread domains and posting of receives. */
void uar_attach(struct ctx *c);
void uar_detach(struct ctx *c); /* its QPs are forgotten */
void uar_unhook(struct ctx *c); /* the tables are the provider's again */

/*
 * Where shall the QP go? The PD to create it on: @pd, or a parent domain of it. uar_made() must
 * follow; with @ibv NULL if it could not be created there, before another attempt on @pd. False:
 * no memory for its locks; the QP is destroyed again, errno is set.
 */
struct ibv_pd *uar_place(struct qp *q, struct ibv_pd *pd, enum ibv_qp_type type);
bool uar_made(struct qp *q, struct ibv_qp *ibv, bool wr_api);
/*
 * Its books cannot be kept: true, and it runs without us. False: it has no locks but ours, so it
 * was destroyed again; errno is set.
 */
bool uar_release(struct qp *q);
/* May a QP with these vendor attributes be moved? */
bool uar_allows(const struct mlx5dv_qp_init_attr *attr);

/* Around the provider's destroy. */
void uar_destroy_begin(struct qp *q);
void uar_destroy_end(struct qp *q, bool destroyed);
void uar_forget(struct qp *q); /* its books; after a destroy, or with its context */

/* Around what a provider may do to a QP's wr_ pointers: modify_qp, for one. */
uintptr_t uar_before(struct qp *q);
void uar_after(struct qp *q, uintptr_t before);
int uar_modify(struct qp *q, struct ibv_qp_attr *attr, int mask);

void uar_child(void); /* after fork */

/* Data path. */
void uar_lock_sends(struct qp *q);
void uar_unlock_sends(struct qp *q);
void uar_learn(struct qp *q); /* this thread posts to it; cheap when known */
/* Its wr_start as before, of a QP without a door: who posts is seen elsewhere, or is nobody's
 * business. */
void uar_unpatch_wr(struct qp *q);
void uar_ignore_me(void); /* this thread is not one of the program's */

#pragma GCC visibility pop

#endif
