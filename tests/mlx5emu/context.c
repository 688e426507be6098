/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opened device files and their handle tables.
 *
 * The descriptor is a memfd, so that numbers, close and dup behave. Handles are the lowest free
 * number of the file, over all kinds of objects, as the kernel gives them out. Closing the file
 * destroys what is left, users before what they use.
 */
#include <linux/memfd.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emu.h"

enum { MAX_CTXS = 1024, MAX_HANDLES = 65536 };

static struct emu_ctx *contexts[MAX_CTXS];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static bool inode_of(int fd, uint64_t *dev, uint64_t *ino)
{
	struct stat st;

	if (syscall(SYS_fstat, fd, &st))
		return false;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return true;
}

static bool contexts_add(struct emu_ctx *ctx)
{
	uint32_t i;

	pthread_mutex_lock(&contexts_lock);
	for (i = 0; i < MAX_CTXS && contexts[i]; i++)
		;
	if (i < MAX_CTXS)
		contexts[i] = ctx;
	pthread_mutex_unlock(&contexts_lock);
	return i < MAX_CTXS;
}

struct emu_ctx *ctx_open(uint32_t dev, int *fd)
{
	struct emu_ctx *ctx;
	int err = shm_join();

	if (err) {
		errno = err;
		return NULL;
	}
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return NULL;
	*fd = memfd_create("mlx5emu", MFD_CLOEXEC);
	if (*fd < 0 || !inode_of(*fd, &ctx->st_dev, &ctx->st_ino) || !contexts_add(ctx)) {
		if (*fd >= 0)
			real_close(*fd);
		free(ctx);
		errno = EMFILE;
		return NULL;
	}
	ctx->handles = calloc(MAX_HANDLES, sizeof(*ctx->handles)); /* never moves */
	if (!ctx->handles)
		abort();
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->num = ++self.next_ctx;
	ctx->dev = dev;
	ctx->next_uar = 1;
	fd_set_kind(*fd, FD_DEVICE, ctx);
	return ctx;
}

struct emu_ctx *ctx_of_fd(int fd)
{
	struct emu_ctx *ctx = fd_get(fd, FD_DEVICE), *found = NULL;
	uint64_t dev, ino;
	uint32_t i;

	if (ctx || fd_get(fd, FD_QUEUE) || fd_get(fd, FD_CM))
		return ctx;
	if (!inode_of(fd, &dev, &ino))
		return NULL;
	/* A descriptor made by dup() or received over a socket: told by its inode. */
	pthread_mutex_lock(&contexts_lock);
	for (i = 0; i < MAX_CTXS; i++)
		if (contexts[i] && contexts[i]->st_dev == dev && contexts[i]->st_ino == ino)
			found = contexts[i];
	if (found) {
		found->fds++;
		fd_set_kind(fd, FD_DEVICE, found);
	}
	pthread_mutex_unlock(&contexts_lock);
	return found;
}

struct emu_queue *ctx_async(uint32_t num)
{
	struct emu_queue *q = NULL;
	uint32_t i;

	pthread_mutex_lock(&contexts_lock);
	for (i = 0; i < MAX_CTXS && !q; i++)
		if (contexts[i] && contexts[i]->num == num)
			q = contexts[i]->async;
	pthread_mutex_unlock(&contexts_lock);
	return q;
}

/* The kinds of objects, each after everything that may depend on it. */
static const uint16_t destroy_order[] = {
	UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ, UVERBS_OBJECT_CQ,	 UVERBS_OBJECT_MW,
	UVERBS_OBJECT_MR, UVERBS_OBJECT_AH,  UVERBS_OBJECT_XRCD, UVERBS_OBJECT_PD,
};

static void destroy_one(struct emu_ctx *ctx, uint16_t type, uint32_t h)
{
	struct ib_uverbs_destroy_cq_resp resp;
	uint32_t events;

	switch (type) {
	case UVERBS_OBJECT_QP:
		qp_destroy(ctx, h, &events);
		break;
	case UVERBS_OBJECT_SRQ:
		srq_destroy(ctx, h, &events);
		break;
	case UVERBS_OBJECT_CQ:
		cq_destroy(ctx, h, &resp);
		break;
	case UVERBS_OBJECT_MW:
		mw_dealloc(ctx, h);
		break;
	case UVERBS_OBJECT_MR:
		mr_dereg(ctx, h);
		break;
	case UVERBS_OBJECT_XRCD:
		xrcd_close(ctx, h);
		break;
	default:
		handle_free(ctx, h);
	}
}

void ctx_close(struct emu_ctx *ctx)
{
	uint32_t i, h;

	pthread_mutex_lock(&contexts_lock);
	if (ctx->fds) {
		ctx->fds--;
		pthread_mutex_unlock(&contexts_lock);
		return;
	}
	for (i = 0; i < MAX_CTXS; i++)
		if (contexts[i] == ctx)
			contexts[i] = NULL;
	pthread_mutex_unlock(&contexts_lock);
	for (i = 0; i < sizeof(destroy_order) / sizeof(*destroy_order); i++)
		for (h = 0; h < ctx->nhandles; h++)
			if (ctx->handles[h].used && ctx->handles[h].type == destroy_order[i])
				destroy_one(ctx, destroy_order[i], h);
	uar_close(ctx);
	free(ctx->handles);
	free(ctx);
}

int handle_new(struct emu_ctx *ctx, uint16_t type, uint32_t slot)
{
	struct emu_handle *e;
	uint32_t h;

	pthread_mutex_lock(&ctx->lock);
	for (h = ctx->first_free; h < MAX_HANDLES && ctx->handles[h].used; h++)
		;
	if (h == MAX_HANDLES) {
		pthread_mutex_unlock(&ctx->lock);
		return -1;
	}
	ctx->first_free = h + 1;
	if (h >= ctx->nhandles)
		ctx->nhandles = h + 1;
	e = &ctx->handles[h];
	e->type = type;
	e->used = 1;
	e->slot = slot;
	e->aux = 0;
	atomic_store(&e->users, 0);
	pthread_mutex_unlock(&ctx->lock);
	return h;
}

struct emu_handle *handle_get(struct emu_ctx *ctx, uint16_t type, uint64_t handle)
{
	struct emu_handle *h = NULL;

	pthread_mutex_lock(&ctx->lock);
	if (handle < ctx->nhandles && ctx->handles[handle].used &&
	    ctx->handles[handle].type == type)
		h = &ctx->handles[handle];
	pthread_mutex_unlock(&ctx->lock);
	return h;
}

int handle_find(struct emu_ctx *ctx, uint16_t type, uint32_t slot)
{
	uint32_t h;
	int found = -1;

	pthread_mutex_lock(&ctx->lock);
	for (h = 0; h < ctx->nhandles; h++)
		if (ctx->handles[h].used && ctx->handles[h].type == type &&
		    ctx->handles[h].slot == slot)
			found = h;
	pthread_mutex_unlock(&ctx->lock);
	return found;
}

void handle_free(struct emu_ctx *ctx, uint64_t handle)
{
	pthread_mutex_lock(&ctx->lock);
	if (handle < ctx->nhandles) {
		ctx->handles[handle].used = 0;
		if (handle < ctx->first_free)
			ctx->first_free = handle;
	}
	pthread_mutex_unlock(&ctx->lock);
}
