/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creators of CQs and QPs that vendors' libraries have beside verbs. Their CQs may stand behind one
 * of our completion channels, and their QPs are managed like others, unless they are for what only
 * the vendor's own functions can post: those are counted.
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

struct create_call {
	void *function;
	struct ibv_context *context;
	void *attr; /* struct ibv_cq_init_attr_ex or ibv_qp_init_attr_ex */
	void *more; /* the vendor's */
	uint32_t more_len;
};

/* ---- CQs ---- */

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

static struct ibv_qp *make_mlx5(void *arg)
{
	struct create_call *c = arg;

	__typeof__(&mlx5dv_create_qp) create = (__typeof__(&mlx5dv_create_qp))c->function;

	return create(c->context, c->attr, c->more);
}

static struct ibv_qp *make_mlx4(void *arg)
{
	struct create_call *c = arg;

	__typeof__(&mlx4dv_create_qp) create = (__typeof__(&mlx4dv_create_qp))c->function;

	return create(c->context, c->attr, c->more);
}

static struct ibv_qp *make_efa(void *arg)
{
	struct create_call *c = arg;

	__typeof__(&efadv_create_qp_ex) create = (__typeof__(&efadv_create_qp_ex))c->function;

	return create(c->context, c->attr, c->more, c->more_len);
}

static struct ibv_qp *create_qp(struct create_call *c, enum rnice_uncontrolled why, bool movable,
				struct ibv_qp *(*make)(void *))
{
	struct ctx *ctx = ctx_of(c->context);

	if (!c->function)
		return NULL;
	return ctx ? qp_create_extended(ctx, c->attr, why, movable, make, c) : make(c);
}

/* DC, and builders of mlx5dv's own, which nobody can record. */
static enum rnice_uncontrolled mlx5_obstacle(const struct mlx5dv_qp_init_attr *attr)
{
	if (!attr || !(attr->comp_mask & ~(uint64_t)MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS))
		return RNICE_UNC_KINDS;
	return RNICE_UNC_DIRECT;
}

EXPORT struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *qp_attr,
				       struct mlx5dv_qp_init_attr *mlx5_qp_attr)
{
	struct create_call c = {BEHIND(mlx5dv_create_qp, "MLX5_1.3"), context, qp_attr,
				mlx5_qp_attr, 0};

	return create_qp(&c, mlx5_obstacle(mlx5_qp_attr), uar_allows(mlx5_qp_attr), make_mlx5);
}

EXPORT struct ibv_qp *mlx4dv_create_qp(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr,
				       struct mlx4dv_qp_init_attr *mlx4_qp_attr)
{
	struct create_call c = {BEHIND(mlx4dv_create_qp, "MLX4_1.0"), context, attr, mlx4_qp_attr,
				0};

	return create_qp(&c, RNICE_UNC_KINDS, false, make_mlx4);
}

EXPORT struct ibv_qp *efadv_create_qp_ex(struct ibv_context *ibvctx,
					 struct ibv_qp_init_attr_ex *attr_ex,
					 struct efadv_qp_init_attr *efa_attr, uint32_t inlen)
{
	struct create_call c = {BEHIND(efadv_create_qp_ex, "EFA_1.1"), ibvctx, attr_ex, efa_attr,
				inlen};

	return create_qp(&c, RNICE_UNC_KINDS, false, make_efa);
}

EXPORT struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *ibvpd, struct ibv_qp_init_attr *attr,
					     uint32_t driver_qp_type)
{
	__typeof__(&efadv_create_driver_qp) create = BEHIND(efadv_create_driver_qp, "EFA_1.0");
	struct ibv_qp *qp = create ? create(ibvpd, attr, driver_qp_type) : NULL;

	if (qp)
		qp_adopt(qp, attr, RNICE_UNC_DIRECT);
	return qp;
}

/* libmlx5 sets wr_complete anew here, as in modify_qp. */
EXPORT int mlx5dv_devx_qp_modify(struct ibv_qp *qp, const void *in, size_t inlen, void *out,
				 size_t outlen)
{
	__typeof__(&mlx5dv_devx_qp_modify) modify = BEHIND(mlx5dv_devx_qp_modify, "MLX5_1.8");
	struct qp *q = qp_of(qp);
	uintptr_t before;
	int err;

	if (!modify)
		return EOPNOTSUPP;
	if (!q)
		return modify(qp, in, inlen, out, outlen);
	before = uar_before(q);
	err = modify(qp, in, inlen, out, outlen);
	uar_after(q, before);
	wr_patch(q);
	return err;
}

/* ---- receive work queues: nothing to control ---- */

EXPORT struct ibv_wq *mlx5dv_create_wq(struct ibv_context *context,
				       struct ibv_wq_init_attr *wq_init_attr,
				       struct mlx5dv_wq_init_attr *mlx5_wq_attr)
{
	__typeof__(&mlx5dv_create_wq) create = BEHIND(mlx5dv_create_wq, "MLX5_1.3");

	return create ? wq_made(create(context, wq_init_attr, mlx5_wq_attr)) : NULL;
}
