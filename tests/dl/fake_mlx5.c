/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands in for libmlx5 where the emulated device has no DevX: what the functions get is of no
 * interest, only who may call them.
 */
#include <infiniband/mlx5dv.h>
#include <stddef.h>

static char object;

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in,
					       size_t inlen, void *out, size_t outlen)
{
	(void)context;
	(void)in;
	(void)inlen;
	(void)out;
	(void)outlen;
	return (struct mlx5dv_devx_obj *)&object;
}

int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	return (void *)obj != &object;
}

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	(void)obj;
	(void)obj_type;
	return 0;
}

/* As libmlx5 uses its own functions: through the PLT, so that a preloaded library is called. */
int fake_inside(void);

int fake_inside(void)
{
	struct mlx5dv_obj obj = {.qp = {0}};
	struct mlx5dv_devx_obj *made = mlx5dv_devx_obj_create(NULL, "\5\0", 2, NULL, 0);

	return made && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) && !mlx5dv_devx_obj_destroy(made);
}
