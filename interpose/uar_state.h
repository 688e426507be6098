/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files about doorbell registers share: uar.c, uar_post.c, uar_seen.c. */
#ifndef RNICE_UAR_STATE_H
#define RNICE_UAR_STATE_H

#include "interpose/shim.h"
#include "scheduler/register.h"
#include "scheduler/uar.h"

#include <infiniband/mlx5dv.h>

#pragma GCC visibility push(hidden)

#define NO_THREAD 63 /* stands for all threads beyond the first 63 */

/* A thread domain of ours. Alone in its cache line: its lock is what threads contend for. */
struct door {
	_Atomic uint32_t lock;
	struct ibv_td *td;
	int index;	/* in uar->plan.door[] */
	uint64_t rings; /* only for ThreadSanitizer: see uar_post.c */
} __attribute__((aligned(64)));

/* A register that some QP of this context rings, as libmlx5 tells. */
struct reg {
	struct reg *next;
	void *address;
	uint32_t page;
	_Atomic uint32_t qps;
	_Atomic uint64_t threads; /* seen to post to these */
	bool reserved;
	int record; /* in the segment */
};

/* One per mlx5 context. */
struct uar {
	struct uar *next; /* of the process; registry */
	struct ctx *ctx;
	struct ibv_td *(*alloc_td)(struct ibv_context *, struct ibv_td_init_attr *);
	int (*dealloc_td)(struct ibv_td *);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *,
					      struct ibv_parent_domain_init_attr *);
	int (*init_obj)(struct mlx5dv_obj *, uint64_t);
	bool hooked;	/* receives and thread domains */
	bool programs;	/* the program makes domains of its own: hands off */
	bool said;	/* that there are no more thread domains */
	uint32_t pages; /* seen so far */
	void **page;
	struct reg *regs;
	struct rnice_uar plan;
	struct door *door[RNICE_UAR_DOORS];
};

extern struct uar *uar_all;
extern struct table uar_placed; /* QPs whose locks or wr_ pointers are ours */

/* uar_post.c */
int uar_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int uar_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void uar_patch_wr(struct qp *q);

/* uar_seen.c; registry held unless said otherwise */
unsigned uar_thread(void); /* this thread's number; any time */
void uar_sweep_threads(void);
void uar_find_reg(struct qp *q); /* reads back what @q rings */
void uar_drop_reg(struct qp *q);
void uar_free_regs(struct uar *u);
void uar_show(struct uar *u, struct reg *r); /* any time */

#pragma GCC visibility pop

#endif
