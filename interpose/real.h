/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that stand behind our wrappers, resolved once by name and version.
 *
 * They are found in load order, whatever the scope: a Python extension loads libibverbs with local
 * scope only, where RTLD_NEXT does not see it. The library stays loaded from then on.
 */
#ifndef RNICE_REAL_H
#define RNICE_REAL_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#undef ibv_query_port

/* name, version, return type, parameters */
#define RNICE_REAL_FUNCTIONS(X)                                                                   \
	X(ibv_get_device_list, "IBVERBS_1.1", struct ibv_device **, (int *))                      \
	X(ibv_open_device, "IBVERBS_1.1", struct ibv_context *, (struct ibv_device *))            \
	X(ibv_close_device, "IBVERBS_1.1", int, (struct ibv_context *))                           \
	X(ibv_import_device, "IBVERBS_1.10", struct ibv_context *, (int))                         \
	X(ibv_query_device, "IBVERBS_1.1", int, (struct ibv_context *, struct ibv_device_attr *)) \
	X(ibv_create_comp_channel, "IBVERBS_1.0", struct ibv_comp_channel *,                      \
	  (struct ibv_context *))                                                                 \
	X(ibv_destroy_comp_channel, "IBVERBS_1.0", int, (struct ibv_comp_channel *))              \
	X(ibv_create_cq, "IBVERBS_1.1", struct ibv_cq *,                                          \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                    \
	X(ibv_resize_cq, "IBVERBS_1.1", int, (struct ibv_cq *, int))                              \
	X(ibv_destroy_cq, "IBVERBS_1.1", int, (struct ibv_cq *))                                  \
	X(ibv_get_cq_event, "IBVERBS_1.1", int,                                                   \
	  (struct ibv_comp_channel *, struct ibv_cq **, void **))                                 \
	X(ibv_ack_cq_events, "IBVERBS_1.1", void, (struct ibv_cq *, unsigned int))                \
	X(ibv_dealloc_pd, "IBVERBS_1.1", int, (struct ibv_pd *))                                  \
	X(ibv_create_qp, "IBVERBS_1.1", struct ibv_qp *,                                          \
	  (struct ibv_pd *, struct ibv_qp_init_attr *))                                           \
	X(ibv_modify_qp, "IBVERBS_1.1", int, (struct ibv_qp *, struct ibv_qp_attr *, int))        \
	X(ibv_query_qp, "IBVERBS_1.1", int,                                                       \
	  (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))                \
	X(ibv_destroy_qp, "IBVERBS_1.1", int, (struct ibv_qp *))                                  \
	X(ibv_destroy_ah, "IBVERBS_1.1", int, (struct ibv_ah *))                                  \
	X(ibv_qp_to_qp_ex, "IBVERBS_1.6", struct ibv_qp_ex *, (struct ibv_qp *))

struct real {
#define X(name, version, ret, params) ret(*name) params;
	RNICE_REAL_FUNCTIONS(X)
#undef X
	/* Its version node is named after the provider ABI, so it is looked up apart. */
	struct ibv_context *(*verbs_open_device)(struct ibv_device *, void *);
};

extern struct real rnice_real_table;
extern _Atomic int rnice_real_ready;
void rnice_real_resolve(void);

static inline const struct real *real(void)
{
	/* R2 acquire, pairs with R1 release in rnice_real_resolve(): ready => table filled. */
	if (__builtin_expect(!atomic_load_explicit(&rnice_real_ready, memory_order_acquire), 0))
		rnice_real_resolve();
	return &rnice_real_table;
}

#endif
