/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts: every way to open a device ends in ctx_attach(), which patches the function tables of
 * the provider's own context in place before the program sees it.
 */
#include "interpose/shim.h"

#include <stddef.h>
#include <stdlib.h>

static bool has(const struct verbs_context *vctx, size_t offset)
{
	return vctx && vctx->sz >= sizeof(*vctx) - offset;
}

/* A member of the extended operations that there may be none of: ours in its place. */
#define PATCH(c, vctx, member)                                                             \
	do {                                                                               \
		if (has(vctx, offsetof(struct verbs_context, member)) && (vctx)->member) { \
			(c)->member = (vctx)->member;                                      \
			(vctx)->member = hook_##member;                                    \
		}                                                                          \
	} while (0)
#define UNPATCH(c, vctx, member)                      \
	do {                                          \
		if ((c)->member)                      \
			(vctx)->member = (c)->member; \
	} while (0)

static void patch(struct ctx *c)
{
	struct verbs_context *vctx = verbs_get_ctx(c->ibv);

	c->ops = c->ibv->ops;
	c->ibv->ops.post_send = hook_post_send;
	c->ibv->ops.poll_cq = hook_poll_cq;
	c->ibv->ops.req_notify_cq = hook_req_notify;
	if (c->ops.bind_mw)
		c->ibv->ops.bind_mw = hook_bind_mw;
	PATCH(c, vctx, create_qp_ex);
	PATCH(c, vctx, create_cq_ex);
	PATCH(c, vctx, create_wq);
	PATCH(c, vctx, destroy_wq);
	PATCH(c, vctx, open_qp);
	uar_attach(c);
}

static void unpatch(struct ctx *c)
{
	struct verbs_context *vctx = verbs_get_ctx(c->ibv);

	c->ibv->ops.post_send = c->ops.post_send;
	c->ibv->ops.poll_cq = c->ops.poll_cq;
	c->ibv->ops.req_notify_cq = c->ops.req_notify_cq;
	c->ibv->ops.bind_mw = c->ops.bind_mw;
	UNPATCH(c, vctx, create_qp_ex);
	UNPATCH(c, vctx, create_cq_ex);
	UNPATCH(c, vctx, create_wq);
	UNPATCH(c, vctx, destroy_wq);
	UNPATCH(c, vctx, open_qp);
	uar_unhook(c);
}

static struct ctx *new_ctx(struct ibv_context *ibv)
{
	struct ibv_device_attr attr;
	struct ctx *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ibv = ibv;
	c->forks = shim.forks;
	c->provider = provider_of(ibv);
	table_forget(&c->qpns);
	c->dev = shim_dev(ibv->device->name);
	c->max_cqe = real()->ibv_query_device(ibv, &attr) ? 0 : attr.max_cqe;
	if (c->dev)
		patch(c);
	return c;
}

struct ctx *ctx_attach(struct ibv_context *ibv)
{
	struct ctx *c;

	shim_start();
	if (!ibv || !shim.active)
		return NULL;
	pthread_mutex_lock(&shim.registry);
	c = ctx_of(ibv);
	if (!c || ibv->ops.post_send != hook_post_send) {
		c = new_ctx(ibv);
		if (c && (!c->dev || table_put(&shim.ctxs, table_ptr_key(ibv), c))) {
			if (c->dev)
				unpatch(c);
			uar_detach(c);
			free(c);
			c = NULL;
		}
	}
	pthread_mutex_unlock(&shim.registry);
	return c;
}

/*
 * Objects that the program did not destroy go with their context. Those that were there at a fork
 * are the parent's, with its bytes in the NIC and its records in the segment. registry held
 */
static void abandon_objects(struct ctx *c)
{
	if (c->forks == shim.forks) {
		while (c->qps)
			qp_abandon(c->qps);
		while (c->cqs)
			cq_abandon(c->cqs);
	}
	channel_close_hidden(c);
}

static int close_ctx(struct ctx *c)
{
	struct ibv_context *ibv = c->ibv;

	pthread_mutex_lock(&shim.registry);
	abandon_objects(c);
	unpatch(c);
	if (c->forks == shim.forks)
		uar_detach(c);
	table_del(&shim.ctxs, table_ptr_key(ibv), c);
	pthread_mutex_unlock(&shim.registry);
	table_free(&c->qpns);
	free(c);
	return real()->ibv_close_device(ibv);
}

/* ---- exported ---- */

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	shim_start();
	return real()->ibv_get_device_list(num);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *ibv = real()->ibv_open_device(device);

	ctx_attach(ibv);
	return ibv;
}

/*
 * libibverbs' interface to providers; mlx5dv_open_device() comes in this way. Its node is named
 * after the ABI between the two, so there is one name for each that it has had (librnice.map).
 */
#define OPEN_DEVICE(abi, at)                                                               \
	EXPORT struct ibv_context *verbs_open_device_##abi(struct ibv_device *, void *);   \
	__asm__(".symver verbs_open_device_" #abi ", verbs_open_device" at                 \
		"IBVERBS_PRIVATE_" #abi);                                                  \
	EXPORT struct ibv_context *verbs_open_device_##abi(struct ibv_device *device,      \
							   void *private_data)             \
	{                                                                                  \
		struct ibv_context *ibv = real()->verbs_open_device(device, private_data); \
                                                                                           \
		ctx_attach(ibv);                                                           \
		return ibv;                                                                \
	}
OPEN_DEVICE(34, "@@")
OPEN_DEVICE(57, "@")
OPEN_DEVICE(59, "@")
OPEN_DEVICE(64, "@")
OPEN_DEVICE(65, "@")

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *ibv = real()->ibv_import_device(cmd_fd);

	ctx_attach(ibv);
	return ibv;
}

EXPORT int ibv_close_device(struct ibv_context *ibv)
{
	struct ctx *c = ctx_of(ibv);

	return c ? close_ctx(c) : real()->ibv_close_device(ibv);
}
