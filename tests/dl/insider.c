/* SPDX-License-Identifier: BSD-2-Clause */
/* A DevX object of the program, and calls from inside the vendor's library (fake_mlx5.c). */
#include "transfer.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

int fake_inside(void);

int main(void)
{
	static const struct calls linked = {
#define X(ret, name, params) .name = name,
		CALLS(X)
#undef X
	};
	struct ibv_context *ctx = open_nth(&linked, 0);
	struct mlx5dv_devx_obj *obj[2];

	printf("inside: %s\n", fake_inside() ? "works" : "refused");
	obj[0] = mlx5dv_devx_obj_create(ctx, "\5\0", 2, NULL, 0); /* CREATE_QP */
	printf("DevX QP: %s\n", obj[0] ? "made" : strerror(errno));
	obj[1] = mlx5dv_devx_obj_create(ctx, "\4\0", 2, NULL, 0); /* CREATE_CQ */
	printf("DevX CQ: %s\n", obj[1] ? "made" : strerror(errno));
	show_stat();
	check(!obj[0] || !mlx5dv_devx_obj_destroy(obj[0]));
	show_stat();
	check(!ibv_close_device(ctx));
	return 0;
}
