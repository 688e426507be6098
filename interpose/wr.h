/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ibv_wr_* interface of a QP: what is recorded of the program's calls, and how it is replayed.
 *
 * The program writes wr_id and wr_flags of its struct ibv_qp_ex and calls builders and setters
 * between ibv_wr_start() and ibv_wr_complete() or ibv_wr_abort() (ibv_wr_post(3)). On a managed QP
 * our functions stand in the places of the provider's (wr.c). They fill the slots behind the head
 * of the software send queue; ibv_wr_complete() moves the head over all of them at once. What goes
 * to the NIC later goes through the provider's own functions (wr_replay.c).
 *
 * Exclusion, beside shim.h:
 *
 *	batch->lock	region: the program's critical region, start to complete or abort; and each
 *			ibv_post_send() on such a QP. Taken before every other lock of ours.
 *	q->lock		batch->ops, open and closed_out; the lending of wr_id and wr_flags
 */
#ifndef RNICE_WR_H
#define RNICE_WR_H

#include "interpose/shim.h"

#pragma GCC visibility push(hidden)

/*
 * The pointers that are replaced. Not wr_send_tso, which no QP type that is managed has; and never
 * a member that came after rdma-core 44: where the library is older than the header, such a member
 * lies on the provider's own fields.
 */
#define WR_FUNCTIONS(X)            \
	X(wr_start)                \
	X(wr_complete)             \
	X(wr_abort)                \
	X(wr_rdma_write)           \
	X(wr_rdma_write_imm)       \
	X(wr_rdma_read)            \
	X(wr_send)                 \
	X(wr_send_imm)             \
	X(wr_send_inv)             \
	X(wr_atomic_cmp_swp)       \
	X(wr_atomic_fetch_add)     \
	X(wr_local_inv)            \
	X(wr_bind_mw)              \
	X(wr_set_sge)              \
	X(wr_set_sge_list)         \
	X(wr_set_inline_data)      \
	X(wr_set_inline_data_list) \
	X(wr_set_ud_addr)          \
	X(wr_set_xrc_srqn)

#define WR_MEMBER(name) __typeof__(((struct ibv_qp_ex *)0)->name) name;
struct wr_ops {
	WR_FUNCTIONS(WR_MEMBER)
	WR_MEMBER(wr_atomic_write) /* only where the program asked for it */
};
#undef WR_MEMBER

struct wr_batch {
	struct qp *q;
	struct wr_batch *next, **link; /* of all there are, under registry */
	struct ibv_qp_ex *x;	       /* NULL: nothing is replaced */
	uint64_t send_ops;	       /* as the program asked for them */
	bool managed;		       /* else only posts are counted */
	struct wr_ops ops;	       /* the provider's own */
	pthread_mutex_t lock;
	bool open;	     /* the program is in its region and may be using wr_id, wr_flags */
	uint64_t closed_out; /* ns: since when the pump is kept out by that; 0: it is not */
	/* the region's */
	_Atomic unsigned long owner; /* thread; 0: nobody is in it */
	uint32_t n;		     /* WRs in the slots from wr_head on */
	struct swr *last;	     /* of them; setters add to it */
	bool whole;		     /* something in it can only be replayed as it was */
	int err;
};

/*
 * In send_flags of a recorded WR, beside the program's own: its data lies in the slot, or a setter
 * that it needs was not called.
 */
#define WR_INLINE (1u << 31)
#define WR_NO_DATA (1u << 30)
#define WR_NO_ADDRESS (1u << 29)
#define WR_INTERNAL (WR_INLINE | WR_NO_DATA | WR_NO_ADDRESS)

static inline bool wr_takes_data(enum ibv_wr_opcode op)
{
	return op != IBV_WR_LOCAL_INV && op != IBV_WR_BIND_MW && op != IBV_WR_ATOMIC_WRITE;
}

/*
 * The recorded list @wr through the provider's functions as one batch. 0, or what the provider's
 * wr_complete said: then nothing was posted. The caller is in the region, or holds q->lock.
 */
int wr_replay(struct qp *q, const struct ibv_send_wr *wr);

#pragma GCC visibility pop

#endif
