/* SPDX-License-Identifier: BSD-2-Clause */
/* What the makers of work requests share: integrity_op.c, integrity_gen.c and integrity_odd.c. */
#ifndef INTEGRITY_GEN_H
#define INTEGRITY_GEN_H

#include "integrity.h"

#define DATA_OFF (4096 + TARGET_DATA) /* in a target area: red zone, atomic words */

/* The program's own copy of a chain, as it may be thrown away after the post. */
struct copy {
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint8_t *payload; /* of the inline ones */
	size_t nwr, payload_len;
};

/* integrity_op.c: one operation, and room for it */
bool is_message(enum ibv_wr_opcode op);
bool consumes_recv(enum ibv_wr_opcode op);
void free_cq_entry(struct world *w, struct box *b);
void need_cq(struct world *w, struct box *b, int n);
void need_sq(struct world *w, struct end *e);
unsigned int *recv_used(struct end *e);
void need_all(struct world *w, struct end *e, bool message);
int split(struct vu_rng *r, uint32_t len, unsigned int max, bool equal, uint32_t *part);
void from_source(struct vu_rng *r, const struct side *s, struct ibv_sge *sge, uint32_t len);
void gather(const struct op *op, uint8_t *to);
size_t lay(struct vu_rng *r, const struct area *a, size_t off, struct ibv_sge *sge, int n,
	   const uint32_t *part);
uint64_t draw_id(struct world *w);
enum ibv_wr_opcode draw_opcode(struct world *w);
void draw_flags(struct world *w, struct end *e, struct op *op);
void settle_flags(struct world *w, struct end *e, struct op *op);
void apply_write(struct end *e, struct op *op);
void draw_send(struct world *w, struct end *e, struct op *op);
void fill_in(struct world *w, struct end *e, struct op *op);

/* integrity_gen.c: chains of them */
struct op *new_op(struct end *e, enum ibv_wr_opcode opcode);
void chain_append(struct world *w, struct op *op);
void copy_chain(struct copy *c, const struct world *w);
void scribble(struct copy *c);

#endif
