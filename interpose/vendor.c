/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creators of CQs and QPs that vendors' libraries have beside verbs. Their CQs may stand behind one
 * of our completion channels, and their QPs are counted: rnice cannot cut what is posted through
 * them.
 *
 * The vendors' libraries are looked up when such a function is called, never linked.
 */
#include "interpose/elf.h"
#include "interpose/shim.h"

#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

static void *behind(const char *name, const char *version)
{
	void *f = elf_behind(name, version);

	if (!f)
		errno = EOPNOTSUPP;
	return f;
}

/* NULL with errno, or the vendor's function. */
#define BEHIND(function, version) ((__typeof__(&function))behind(#function, version))

/* ---- CQs ---- */

struct create_call {
	void *function;
	struct ibv_context *context;
	struct ibv_cq_init_attr_ex *attr;
	void *more;
	uint32_t more_len;
};

static struct ibv_cq_ex *call_mlx5(void *arg)
{
	struct create_call *c = arg;
	__typeof__(&mlx5dv_create_cq) create = (__typeof__(&mlx5dv_create_cq))c->function;

	return create(c->context, c->attr, c->more);
}

static struct ibv_cq_ex *call_efa(void *arg)
{
	struct create_call *c = arg;
	__typeof__(&efadv_create_cq) create = (__typeof__(&efadv_create_cq))c->function;

	return create(c->context, c->attr, c->more, c->more_len);
}

static struct ibv_cq_ex *create_cq(struct create_call *c, bool opaque,
				   struct ibv_cq_ex *(*make)(void *))
{
	struct ctx *ctx = ctx_of(c->context);

	if (!c->function)
		return NULL;
	return ctx ? cq_create_extended(ctx, c->attr, opaque, make, c) : make(c);
}

static bool is_zero(const void *p, size_t len)
{
	const char *c = p;

	return !len || (!*c && !memcmp(c, c + 1, len - 1));
}

EXPORT struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *cq_attr,
					  struct mlx5dv_cq_init_attr *mlx5_cq_attr)
{
	struct create_call c = {behind("mlx5dv_create_cq", "MLX5_1.1"), context, cq_attr,
				mlx5_cq_attr, 0};
	/* libmlx5 does not read compressed entries: the program does, past verbs. */
	bool opaque =
		mlx5_cq_attr && mlx5_cq_attr->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;

	return create_cq(&c, opaque, call_mlx5);
}

EXPORT struct ibv_cq_ex *efadv_create_cq(struct ibv_context *ibvctx,
					 struct ibv_cq_init_attr_ex *attr_ex,
					 struct efadv_cq_init_attr *efa_attr, uint32_t inlen)
{
	struct create_call c = {behind("efadv_create_cq", "EFA_1.2"), ibvctx, attr_ex, efa_attr,
				inlen};
	/* With fields that struct efadv_cq reads, or memory of the program's own. */
	bool opaque = efa_attr && !is_zero(efa_attr, inlen);

	return create_cq(&c, opaque, call_efa);
}

/* ---- QPs ---- */

static struct ibv_qp *counted(struct ibv_qp *qp, const struct ibv_qp_init_attr *attr)
{
	if (qp)
		qp_adopt(qp, attr, RNICE_UNC_DIRECT);
	return qp;
}

/* The first fields of the extended attributes are those of the plain ones (verbs.h). */
static struct ibv_qp *counted_ex(struct ibv_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	return counted(qp, (const struct ibv_qp_init_attr *)attr);
}

EXPORT struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *qp_attr,
				       struct mlx5dv_qp_init_attr *mlx5_qp_attr)
{
	__typeof__(&mlx5dv_create_qp) create = BEHIND(mlx5dv_create_qp, "MLX5_1.3");

	return create ? counted_ex(create(context, qp_attr, mlx5_qp_attr), qp_attr) : NULL;
}

EXPORT struct ibv_qp *mlx4dv_create_qp(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr,
				       struct mlx4dv_qp_init_attr *mlx4_qp_attr)
{
	__typeof__(&mlx4dv_create_qp) create = BEHIND(mlx4dv_create_qp, "MLX4_1.0");

	return create ? counted_ex(create(context, attr, mlx4_qp_attr), attr) : NULL;
}

EXPORT struct ibv_qp *efadv_create_qp_ex(struct ibv_context *ibvctx,
					 struct ibv_qp_init_attr_ex *attr_ex,
					 struct efadv_qp_init_attr *efa_attr, uint32_t inlen)
{
	__typeof__(&efadv_create_qp_ex) create = BEHIND(efadv_create_qp_ex, "EFA_1.1");

	return create ? counted_ex(create(ibvctx, attr_ex, efa_attr, inlen), attr_ex) : NULL;
}

EXPORT struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *ibvpd, struct ibv_qp_init_attr *attr,
					     uint32_t driver_qp_type)
{
	__typeof__(&efadv_create_driver_qp) create = BEHIND(efadv_create_driver_qp, "EFA_1.0");

	return create ? counted(create(ibvpd, attr, driver_qp_type), attr) : NULL;
}

/* ---- receive work queues: nothing to control ---- */

EXPORT struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context,
				       struct ibv_wq_init_attr *wq_init_attr,
				       struct mlx5dv_wq_init_attr *mlx5_wq_attr)
{
	__typeof__(&mlx5dv_create_wq) create = BEHIND(mlx5dv_create_wq, "MLX5_1.3");

	return create ? wq_made(create(context, wq_init_attr, mlx5_wq_attr)) : NULL;
}
