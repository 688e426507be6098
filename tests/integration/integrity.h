/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * integrity: random work requests against a model of all memory and all completions.
 *
 * A round builds a world of two sides (contexts) and up to MAX_PAIR connected pairs of ends (QPs).
 * Every piece of memory that a NIC may write is an area with a model next to it. An operation
 * changes the model when it is posted, in posting order, which on one QP is the order in which it
 * must take effect; whenever nothing is under way, memory and model must be equal in every byte.
 *
 * What the program decides and logs must not depend on timing. So a completion *arrives* whenever
 * the CQ is polled (and is checked then), but is *retired* only at points that the random sequence
 * chooses; room in queues is counted by what was retired.
 */
#ifndef INTEGRITY_H
#define INTEGRITY_H

#include "verbs_util.h"

#include <sys/queue.h>

#define MAX_PAIR 4
#define MAX_SGE 32
#define SRC_PARTS 4
#define ATOMIC_WORDS 64	 /* at the head of a target area; only atomics touch them */
#define TARGET_DATA 4096 /* where the bytes for WRITE start */
#define UD_GRH 40

struct area {
	uint8_t *live, *model;
	size_t len;
	struct ibv_mr *mr;
};

/* A message that consumes a receive, from post to the retirement of its receive completion. */
struct msg {
	STAILQ_ENTRY(msg) link;
	enum ibv_wr_opcode opcode;
	uint8_t *data; /* NULL for WRITE_IMM */
	uint32_t len;
	uint32_t imm; /* or the invalidated rkey */
	uint64_t serial;
	bool arrived, silent;
	struct ibv_wc wc;
};
STAILQ_HEAD(msg_list, msg);

struct op {
	STAILQ_ENTRY(op) link;
	struct ibv_send_wr wr; /* sg_list is sge */
	struct ibv_sge sge[MAX_SGE];
	uint32_t len;
	uint64_t serial; /* orders all ops of an end */
	bool signaled, silent, arrived;
	struct ibv_wc wc;
	size_t sink_off, sink_len;     /* READ, atomic: what it changes in its end's sink */
	size_t target_off, target_len; /* WRITE, READ of the peer's target area */
	bool reads_target;
	uint64_t old; /* atomic: the value to be fetched */
};
STAILQ_HEAD(op_list, op);

/* A posted receive. */
struct slot {
	size_t off; /* in the side's receive area */
	bool busy;
	uint64_t wr_id;
	struct ibv_sge sge[MAX_SGE];
	int num_sge;
};

/* A CQ and how many of its entries the program may still cause. */
struct box {
	struct vu_cq cq;
	int reserved;
	bool armed;
	struct side *side;
};

struct window { /* a memory window on this end's target area, for its peer to use */
	struct ibv_mw *mw;
	bool bound;
	uint32_t rkey;
	size_t off, len;
};

struct end {
	struct side *side;
	struct end *peer;
	unsigned int pair;
	struct vu_qp q;
	struct box *scq, *rcq;
	struct ibv_ah *ah; /* UD: to the peer */
	bool sig_all;
	/* sending */
	struct op_list ops; /* posted, not retired */
	unsigned int sq_used, sq_cap;
	uint64_t serial, logged;
	struct area sink;
	size_t sink_next;
	uint64_t last_write; /* serial of the newest op that changes the peer's target */
	size_t last_off, last_len;
	/* receiving */
	struct area target;
	struct window win;
	struct msg_list inbox; /* posted by the peer, not retired here */
	unsigned int rq_used, rq_cap;
	struct slot **rq; /* FIFO of the receives on the RQ */
	unsigned int rq_head, rq_len;
	uint64_t msgs_logged;
};

struct side {
	struct vu_dev dev;
	struct box box[2 * MAX_PAIR];
	unsigned int nbox;
	struct area source; /* constant */
	struct ibv_mr *part[SRC_PARTS];
	struct area recv;
	struct slot *slot;
	unsigned int nslot, next_slot;
	size_t slot_room;
	struct ibv_srq *srq;
	unsigned int srq_used;
	struct end end[MAX_PAIR];
};

enum layout { LAYOUT_ONE_CQ, LAYOUT_SEND_RECV, LAYOUT_PER_QP, LAYOUT_COUNT };
enum id_kind { ID_RANDOM, ID_SERIAL, ID_ZERO, ID_MINUS_ONE, ID_FEW, ID_COUNT };

/* What one round draws. */
struct plan {
	enum ibv_qp_type type;
	unsigned int pairs, send_wr, recv_wr, sge, recv_sge, inline_data, chain, unsignaled,
		rd_atomic;
	int cqe;
	enum layout layout;
	enum id_kind ids;
	bool srq, events, reads, windows, both_ways;
	uint32_t max_len, recv_len; /* of a WRITE or READ; of a SEND */
};

struct settings {
	enum ibv_qp_type type;
	enum vu_post api;
	enum vu_poll poll;
	uint64_t rounds, ops, max_size;
	bool imm_len;	  /* check and log byte_len of RECV_RDMA_WITH_IMM */
	bool fence_reads; /* FENCE also where READs and atomics are under way */
	bool no_windows, no_events, loose_wc;
};
extern struct settings settings;

struct world {
	struct plan plan;
	struct side side[2];
	struct vu_rng rng;	/* every decision that the log can show */
	struct vu_rng poll_rng; /* batch sizes, pauses: may depend on timing */
	/* the chain being built: the last chain_len ops of one end, not posted yet */
	struct end *chain_end;
	struct op *chain;
	unsigned int chain_len;
	bool chain_wr_api;
	uint64_t id;
	unsigned long completions, messages;
};

/* integrity_world.c */
void world_open(struct world *w, unsigned int round);
void world_close(struct world *w);
void world_print(const struct world *w); /* to stderr, after a hang */
void area_check(const struct area *a, const char *what, const struct end *e);
struct end *world_end(struct side *s, uint32_t qp_num);

/* integrity_cq.c: completions */
bool retire_send(struct world *w, struct end *e); /* up to the oldest signaled op; false: none */
bool retire_recv(struct world *w, struct end *e);
void retire_all_recv(struct world *w, struct end *e);
bool pump(struct world *w); /* polls every CQ once; true when there was an entry */

/* integrity_gen.c: work requests */
void chain_begin(struct world *w, struct end *e);
void chain_add_random(struct world *w);
void chain_add_flush(struct world *w); /* signaled, no bytes, not logged */
void chain_post(struct world *w);
void drain(struct world *w, struct end *e); /* until nothing of @e is posted any more */

/* integrity_odd.c: posts that are refused or taken back, and memory windows */
void post_bad_chain(struct world *w, struct end *e);
void post_too_many(struct world *w, struct end *e);
void post_aborted(struct world *w, struct end *e);
void window_step(struct world *w, struct end *e);

#endif
