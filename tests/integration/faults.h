/* SPDX-License-Identifier: BSD-2-Clause */
/* faults: one batch of WRs, what is allowed to become of it, and the cases of faults_own.c. */
#ifndef FAULTS_H
#define FAULTS_H

#include "verbs_util.h"

#define MAX_WR 16
#define MEM (8u << 20)
#define ID0 0x1000 /* wr_id of the first WR */
#define BIT(status) (1u << (status))
extern enum vu_post faults_api;

#define QUIET 3.0 /* seconds without a completion after which none is expected any more */

/* One WR of a batch. */
struct job {
	enum ibv_wr_opcode op;
	uint32_t len;
	const uint8_t *remote;
	uint32_t rkey;
	const uint8_t *local[3]; /* three SGEs of a third of len each; atomics use the first */
	uint32_t lkey[3];
	bool signaled;
};

struct run {
	struct vu_pair p;
	struct vu_pair_spec spec;
	struct vu_link link;
	struct job job[MAX_WR];
	int n; /* jobs posted */
	struct ibv_wc wc[2 * MAX_WR];
	int got;
	const char *name;
};

enum flush { FLUSH_MUST, FLUSH_MAY }; /* of WRs after the failed one */

/* What is allowed. */
struct verdict {
	int fail;	     /* index of the WR that fails; -1: any, or none */
	unsigned int status; /* BIT()s that its completion may have */
	enum flush flush;
	bool may_be_silent; /* the failed WR may have no completion (a native defect) */
};

/* faults_list.c */
void open_run(struct run *r, const char *name);
void connect_run(struct run *r);
void make_jobs(struct run *r, int n, enum ibv_wr_opcode op, uint32_t len);
void post_jobs(struct run *r);
void collect(struct run *r);
void print_list(const struct run *r, bool canonical);
void finish(struct run *r, const struct verdict *v, bool canonical);
void judge(const struct run *r, const struct verdict *v);

/* faults_own.c: the QP itself is taken away */
void case_to_error_full_queue(const char *name);
void case_post_in_error(const char *name);
void case_reset_and_reuse(const char *name);
void case_rough_reset_and_reuse(const char *name);
void case_error_and_reuse(const char *name);
void case_destroy_with_work(const char *name);
void case_neighbour_unharmed(const char *name);

#endif
