/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How one send WR of the program becomes chunks: pure arithmetic over its sg_list.
 *
 * RDMA WRITE and READ may be cut at any byte: local and remote address advance together. An RDMA
 * WRITE_WITH_IMM becomes plain WRITEs, and the immediate goes with the last. FENCE stays on the
 * first chunk (later ones are behind it anyway), SOLICITED on the last. Everything else is one
 * message to the responder (a receive is consumed, an atomic executed) and is never cut. InfiniBand
 * Architecture Specification 1.4, 9.4 (transport functions), 10.8.3.3 (fence).
 */
#ifndef RNICE_PLAN_H
#define RNICE_PLAN_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A send WR of the program, captured by value. Of one that went straight to the NIC only wr.wr_id,
 * length, signaled, reported and t0 are set.
 */
struct swr {
	struct ibv_send_wr wr; /* next is NULL, sg_list is the copy */
	uint64_t length;       /* bytes in all */
	uint64_t cut;	       /* bytes that already went into chunks */
	uint32_t sge_at;       /* cursor: entry ... */
	uint32_t sge_off;      /* ... and offset in it */
	bool signaled;	       /* the program expects a completion */
	bool cuttable;
	bool by_entry; /* cut so that no piece has more than one SGE */
	bool recorded; /* of ibv_wr_*, and goes to the NIC through that */
	bool started;  /* a chunk was made, also of length 0 */
	bool reported; /* failed: its one completion was delivered */
	uint64_t t0;   /* ns; 0 = not timed */
};

/* @w becomes a copy of @wr with @sge as its list, of which nothing was sent. */
static inline void plan_start(struct swr *w, const struct ibv_send_wr *wr, struct ibv_sge *sge,
			      uint64_t length)
{
	w->wr = *wr;
	w->wr.next = NULL;
	w->wr.sg_list = sge;
	w->length = length;
	w->cut = 0;
	w->sge_at = 0;
	w->sge_off = 0;
	w->signaled = false;
	w->cuttable = false;
	w->by_entry = false;
	w->recorded = false;
	w->started = false;
	w->reported = false;
	w->t0 = 0;
}

static inline bool plan_cuttable(enum ibv_qp_type type, enum ibv_wr_opcode opcode, bool cut_imm)
{
	if (type != IBV_QPT_RC && type != IBV_QPT_XRC_SEND)
		return false;
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ ||
	       (opcode == IBV_WR_RDMA_WRITE_WITH_IMM && cut_imm);
}

/* Bytes that @wr moves. 64 bits: num_sge entries of up to 2^32 - 1 each. */
static inline uint64_t plan_length(const struct ibv_send_wr *wr)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		sum += wr->sg_list[i].length;
	return sum;
}

/* What is left of the entry that the next byte is in; there must be one. */
uint64_t plan_entry_rest(const struct swr *w);

/* The length of the next chunk when at most @max bytes are wanted; all that is left if uncuttable.
 */
static inline uint64_t plan_piece(const struct swr *w, uint64_t max)
{
	uint64_t left = w->length - w->cut, rest;

	if (!w->cuttable || (left <= max && !(w->by_entry && w->started)))
		return left;
	if (!w->by_entry)
		return max;
	rest = plan_entry_rest(w);
	return rest < max ? rest : max;
}

static inline bool plan_is_last(const struct swr *w, uint64_t piece)
{
	return w->cut + piece == w->length;
}

/*
 * Make the chunk of @piece bytes (from plan_piece) at the cursor, and advance the cursor. @sge
 * holds w->wr.num_sge entries. SIGNALED, wr_id and next are the caller's business.
 */
void plan_chunk(struct swr *w, uint64_t piece, struct ibv_send_wr *out, struct ibv_sge *sge);

#endif
