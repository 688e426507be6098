/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways around verbs: functions that hand the memory of queues and doorbells to the program (or to a
 * GPU), and DevX, which makes queues that no library knows. RNICE_DIRECT=allow: what is handed out
 * is left alone from then on and counted as uncontrolled. RNICE_DIRECT=deny: the device looks as if
 * it had none of this, and programs that can do without fall back to verbs.
 *
 * The vendors' libraries use some of these functions themselves: such calls pass.
 */
#include "interpose/dl.h"
#include "interpose/elf.h"
#include "interpose/shim.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/manadv.h>
#include <infiniband/mlx4dv.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

#define BEHIND(function, version) ((__typeof__(&function))elf_behind(#function, version))

static bool denied(void)
{
	shim_start();
	return shim.active && shim.cfg.direct == RNICE_DIRECT_DENY;
}

/* Is it the vendor's library itself that calls? */
static bool is_caller(const void *return_address, const void *function)
{
	return function && dl_same_object(return_address, function);
}

static int unsupported(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

/* ---- queues that verbs made ---- */

enum { QUEUES = MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ | MLX5DV_OBJ_RWQ };

/* mlx4 and mana number what they share with mlx5 alike, but mana has no SRQ. */
_Static_assert((int)MLX4DV_OBJ_QP == MLX5DV_OBJ_QP && (int)MLX4DV_OBJ_CQ == MLX5DV_OBJ_CQ &&
		       (int)MLX4DV_OBJ_SRQ == MLX5DV_OBJ_SRQ &&
		       (int)MLX4DV_OBJ_RWQ == MLX5DV_OBJ_RWQ &&
		       (int)MANADV_OBJ_QP == MLX5DV_OBJ_QP && (int)MANADV_OBJ_CQ == MLX5DV_OBJ_CQ &&
		       (MANADV_OBJ_RWQ & ~QUEUES) == 0,
	       "one mask for all");

static void hand_out(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct qp *q = qp ? qp_of(qp) : NULL;
	struct cq *c = cq_of(cq);

	pthread_mutex_lock(&shim.registry);
	if (q)
		qp_hand_out(q);
	if (c)
		cq_hand_out(c);
	pthread_mutex_unlock(&shim.registry);
}

/* The vendors' structs name the same members; a macro also for the sake of the return address. */
#define INIT_OBJ(function, version, obj, type)                                                     \
	({                                                                                         \
		__typeof__(&function) init_ = BEHIND(function, version);                           \
		bool own_ = is_caller(__builtin_return_address(0), (const void *)init_);           \
                                                                                                   \
		if (init_ && !own_ && !denied())                                                   \
			hand_out((type)&MLX5DV_OBJ_QP ? (obj)->qp.in : NULL,                       \
				 (type)&MLX5DV_OBJ_CQ ? (obj)->cq.in : NULL);                      \
		!init_ || (!own_ && (type)&QUEUES && denied()) ? unsupported() : init_(obj, type); \
	})

EXPORT int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	return INIT_OBJ(mlx5dv_init_obj, "MLX5_1.2", obj, obj_type);
}

/* The first version writes one field differently. */
EXPORT int mlx5dv_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t obj_type);
__asm__(".symver mlx5dv_init_obj_1_0, mlx5dv_init_obj@MLX5_1.0");

EXPORT int mlx5dv_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	return INIT_OBJ(mlx5dv_init_obj, "MLX5_1.0", obj, obj_type);
}

EXPORT int mlx4dv_init_obj(struct mlx4dv_obj *obj, uint64_t obj_type)
{
	return INIT_OBJ(mlx4dv_init_obj, "MLX4_1.0", obj, obj_type);
}

EXPORT int manadv_init_obj(struct manadv_obj *obj, uint64_t obj_type)
{
	return INIT_OBJ(manadv_init_obj, "MANA_1.0", obj, obj_type);
}

/* rdma-core 44 does not know these yet; a newer efadv.h may declare them with its own types. */
EXPORT int query_qp_wqs(struct ibv_qp *qp, void *sq, void *rq,
			uint32_t len) __asm__("efadv_query_qp_wqs");
EXPORT int query_cq(struct ibv_cq *cq, void *attr, uint32_t len) __asm__("efadv_query_cq");

EXPORT int query_qp_wqs(struct ibv_qp *qp, void *sq, void *rq, uint32_t len)
{
	__typeof__(&query_qp_wqs) query =
		(__typeof__(&query_qp_wqs))elf_behind("efadv_query_qp_wqs", "EFA_1.4");

	if (!query || denied())
		return unsupported();
	hand_out(qp, NULL);
	return query(qp, sq, rq, len);
}

EXPORT int query_cq(struct ibv_cq *cq, void *attr, uint32_t len)
{
	__typeof__(&query_cq) query =
		(__typeof__(&query_cq))elf_behind("efadv_query_cq", "EFA_1.4");

	if (!query || denied())
		return unsupported();
	hand_out(NULL, cq);
	return query(cq, attr, len);
}

/* ---- DevX ---- */

EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
	__typeof__(&mlx5dv_is_supported) ask = BEHIND(mlx5dv_is_supported, "MLX5_1.8");

	return ask && !denied() && ask(device);
}

EXPORT struct ibv_context *mlx5dv_open_device(struct ibv_device *device,
					      struct mlx5dv_context_attr *attr)
{
	__typeof__(&mlx5dv_open_device) open_device = BEHIND(mlx5dv_open_device, "MLX5_1.7");
	struct ibv_context *ibv;

	if (!open_device || (attr && attr->flags & MLX5DV_CONTEXT_FLAGS_DEVX && denied())) {
		unsupported();
		return NULL;
	}
	ibv = open_device(device, attr);
	ctx_attach(ibv);
	return ibv;
}

/* Does this command make a queue that sends? The opcode comes first (CREATE_QP, CREATE_SQ). */
static bool makes_sender(const void *in, size_t inlen)
{
	uint16_t opcode = 0;

	if (inlen >= sizeof(opcode))
		memcpy(&opcode, in, sizeof(opcode));
	return be16toh(opcode) == 0x500 || be16toh(opcode) == 0x904;
}

EXPORT struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in,
						      size_t inlen, void *out, size_t outlen)
{
	__typeof__(&mlx5dv_devx_obj_create) create = BEHIND(mlx5dv_devx_obj_create, "MLX5_1.7");
	bool own = is_caller(__builtin_return_address(0), (const void *)create);
	struct mlx5dv_devx_obj *obj;
	struct ctx *ctx;

	if (!create || (!own && denied())) {
		unsupported();
		return NULL;
	}
	obj = create(context, in, inlen, out, outlen);
	/* The library's own objects carry no traffic, and may be made while we hold our locks. */
	ctx = obj && !own && shim.managing && makes_sender(in, inlen) ? ctx_of(context) : NULL;
	if (!ctx)
		return obj;
	pthread_mutex_lock(&shim.registry);
	if (!table_put(&shim.devx, table_ptr_key(obj), ctx->dev))
		rnice_port_count(ctx->dev->port, RNICE_CTR_UNCONTROLLED + RNICE_UNC_DIRECT, 1);
	pthread_mutex_unlock(&shim.registry);
	return obj;
}

EXPORT int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	__typeof__(&mlx5dv_devx_obj_destroy) destroy = BEHIND(mlx5dv_devx_obj_destroy, "MLX5_1.7");
	struct dev *dev = table_get(&shim.devx, table_ptr_key(obj));
	int err;

	if (!destroy)
		return unsupported();
	if (!dev)
		return destroy(obj);
	/* The address may belong to a new object as soon as this one is gone. */
	pthread_mutex_lock(&shim.registry);
	table_del(&shim.devx, table_ptr_key(obj), dev);
	pthread_mutex_unlock(&shim.registry);
	err = destroy(obj);
	pthread_mutex_lock(&shim.registry);
	if (err)
		table_put(&shim.devx, table_ptr_key(obj), dev);
	else
		rnice_port_count(dev->port, RNICE_CTR_UNCONTROLLED + RNICE_UNC_DIRECT, -1);
	pthread_mutex_unlock(&shim.registry);
	return err;
}
