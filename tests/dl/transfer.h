/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An RC transfer with libibverbs' functions from wherever the caller has them: looked up, linked,
 * or both. What is inline in verbs.h (posting, polling) is used as NCCL does, through the context.
 */
#ifndef TRANSFER_H
#define TRANSFER_H

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#undef ibv_reg_mr

/* return type, name, parameters; all are of IBVERBS_1.1 */
#define CALLS(X)                                                                        \
	X(struct ibv_device **, ibv_get_device_list, (int *))                           \
	X(void, ibv_free_device_list, (struct ibv_device **))                           \
	X(struct ibv_context *, ibv_open_device, (struct ibv_device *))                 \
	X(int, ibv_close_device, (struct ibv_context *))                                \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *))                        \
	X(int, ibv_dealloc_pd, (struct ibv_pd *))                                       \
	X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int))          \
	X(int, ibv_dereg_mr, (struct ibv_mr *))                                         \
	X(struct ibv_cq *, ibv_create_cq,                                               \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))          \
	X(int, ibv_destroy_cq, (struct ibv_cq *))                                       \
	X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))             \
	X(int, ibv_destroy_qp, (struct ibv_qp *))                                       \
	X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *))

struct calls {
#define X(ret, name, params) ret(*name) params;
	CALLS(X)
#undef X
};

#define check(cond)                                                                        \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

/* Every object of one context that writes to itself. */
struct loop {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	char *mem;
};

#define LOOP_LEN (1u << 20)

void loop_open(const struct calls *v, struct loop *l, struct ibv_context *ctx);
void loop_run(struct loop *l, unsigned int writes); /* LOOP_LEN each, data checked */
/* All but the context. */
void loop_close(const struct calls *v, struct loop *l);

/* Device number @n. */
struct ibv_context *open_nth(const struct calls *v, int n);
/* What `rnice stat` says of this process now, by the command in $DL_STAT; nothing without. */
void show_stat(void);
/* The whole: open, transfer, show, close. */
void transfer(const struct calls *v);

#endif
