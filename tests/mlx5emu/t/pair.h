/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected queue pairs of one process, and checks that report by name.
 *
 * check(name, condition) prints "ok NAME" or "FAIL NAME: where"; the exit status of a program is
 * the number of failures. Trouble that makes further checks pointless ends the program.
 */
#ifndef MLX5EMU_T_PAIR_H
#define MLX5EMU_T_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

extern int failures;
#define check(name, cond) check_at(name, cond, #cond, __FILE__, __LINE__)
void check_at(const char *name, bool ok, const char *what, const char *file, int line);
#define must(cond) must_at((cond) ? 1 : 0, #cond, __FILE__, __LINE__)
void must_at(int ok, const char *what, const char *file, int line);

enum { MEM = 1 << 20 };

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *mem;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_srq *srq; /* of side 1, if asked for */
	struct side s[2];
};

struct pair_opt {
	const char *dev;       /* NULL: the first */
	enum ibv_qp_type type; /* 0: RC */
	bool srq;
	int rnr_retry, timeout, retry_cnt; /* 0: 7, 14, 7 */
	int cqe;
	int access; /* of the QPs; 0: all remote access */
	bool sq_sig_all;
};

struct ibv_context *open_device(const char *name);
void pair_open(struct pair *p, const struct pair_opt *o);
void pair_close(struct pair *p);
int qp_to_rts(struct ibv_qp *qp, uint32_t dest, const union ibv_gid *gid, const struct pair_opt *o);
void qp_to_err(struct ibv_qp *qp);
/* One completion within 3 s, or status -1. */
struct ibv_wc wait_wc(struct ibv_cq *cq);
int post_write(struct pair *p, uint64_t id, size_t off, uint32_t len, uint32_t rkey);
int post_send(struct pair *p, int side, uint64_t id, uint32_t len, uint32_t lkey);
int post_recv(struct pair *p, int side, uint64_t id, uint32_t len);
/* The next async event within 2 s, acknowledged; -1 if there is none. */
int wait_async(struct ibv_context *ctx);

#endif
