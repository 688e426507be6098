/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways to get at devices and queues beside ibv_open_device() and ibv_create_qp(). contexts HOW
 *
 *	two	two contexts of one device and one of another, closed in another order
 *	import	a device that is imported by its descriptor
 *	dvopen	mlx5dv_open_device()
 *	order	objects destroyed in all orders that verbs allow, and some that it refuses
 *	direct	the memory of queues handed out by mlx5dv_init_obj()
 *	devx	which of the ways around verbs there seem to be
 *
 * What it prints is the same natively and under rnice, unless RNICE_DIRECT=deny.
 */
#include "transfer.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>
#include <unistd.h>

static const struct calls linked = {
#define X(ret, name, params) .name = name,
	CALLS(X)
#undef X
};
static const struct calls *v = &linked;

static void close_loop(struct loop *l)
{
	loop_close(v, l);
	check(!ibv_close_device(l->ctx));
}

static void two_contexts(void)
{
	struct loop l[3];
	int i, round;

	for (i = 0; i < 3; i++)
		loop_open(v, &l[i], open_nth(v, i / 2));
	for (round = 0; round < 2; round++)
		for (i = 0; i < 3; i++)
			loop_run(&l[i], 2);
	show_stat();
	close_loop(&l[0]);
	loop_run(&l[1], 2);
	close_loop(&l[2]);
	loop_run(&l[1], 2);
	close_loop(&l[1]);
}

static void import(void)
{
	struct ibv_context *first = open_nth(v, 0), *second;
	struct loop l;

	second = ibv_import_device(dup(first->cmd_fd));
	if (!second) {
		printf("no import: %s\n", strerror(errno));
		check(!ibv_close_device(first));
		return;
	}
	loop_open(v, &l, second);
	loop_run(&l, 4);
	show_stat();
	close_loop(&l);
	check(!ibv_close_device(first));
}

static struct ibv_context *dv_open(uint32_t flags)
{
	struct mlx5dv_context_attr attr = {.flags = flags};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = mlx5dv_open_device(list[0], &attr);

	ibv_free_device_list(list);
	return ctx;
}

static void dv_transfer(void)
{
	struct loop l;

	loop_open(v, &l, dv_open(0));
	loop_run(&l, 4);
	show_stat();
	close_loop(&l);
}

static void orders(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_context *ctx;
	struct ibv_cq *cq[2];
	struct loop l;
	int i;

	for (i = 0; i < 2; i++) {
		ctx = open_nth(v, 0);
		check((channel = ibv_create_comp_channel(ctx)));
		check((cq[0] = ibv_create_cq(ctx, 8, NULL, channel, 0)));
		check((cq[1] = ibv_create_cq(ctx, 8, NULL, channel, 0)));
		printf("channel in use: %s\n", strerror(ibv_destroy_comp_channel(channel)));
		check(!ibv_destroy_cq(cq[i]));
		loop_open(v, &l, ctx);
		loop_run(&l, 1);
		printf("pd in use: %s\n", ibv_dealloc_pd(l.pd) ? "refused" : "gone");
		check(!ibv_destroy_cq(cq[!i]));
		check(!ibv_destroy_comp_channel(channel));
		loop_run(&l, 2);
		close_loop(&l);
	}
}

static void direct(void)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_qp qp = {0};
	struct mlx5dv_cq cq = {0};
	struct mlx5dv_pd pd = {0};
	struct loop l;
	int err;

	loop_open(v, &l, open_nth(v, 0));
	loop_run(&l, 2);
	obj.qp.in = l.qp[0];
	obj.qp.out = &qp;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP);
	printf("QP: %s\n", err ? strerror(err) : qp.sq.buf ? "handed out" : "empty");
	loop_run(&l, 2);
	obj.cq.in = l.cq;
	obj.cq.out = &cq;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ);
	printf("CQ: %s\n", err ? strerror(err) : cq.buf ? "handed out" : "empty");
	obj.pd.in = l.pd;
	obj.pd.out = &pd;
	printf("PD: %s\n", strerror(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD)));
	loop_run(&l, 2);
	show_stat();
	close_loop(&l);
}

static void devx(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = dv_open(MLX5DV_CONTEXT_FLAGS_DEVX);
	char in[64] = {0x05, 0}, out[16] = {0};

	printf("mlx5dv: %s\n", mlx5dv_is_supported(list[0]) ? "supported" : "none");
	printf("open with DevX: %s\n", ctx ? "done" : strerror(errno));
	if (ctx)
		check(!ibv_close_device(ctx));
	check((ctx = ibv_open_device(list[0])));
	errno = 0;
	if (!mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out)))
		printf("DevX QP: %s\n", strerror(errno));
	check(!ibv_close_device(ctx));
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *how;
		void (*run)(void);
	} runs[] = {{"two", two_contexts}, {"import", import}, {"dvopen", dv_transfer},
		    {"order", orders},	   {"direct", direct}, {"devx", devx}};
	size_t i;

	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		if (argc > 1 && !strcmp(argv[1], runs[i].how)) {
			runs[i].run();
			puts("done");
			return 0;
		}
	return 2;
}
