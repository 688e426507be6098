/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UAR pages: the doorbell pages a program maps.
 *
 * In thread mode a page is plain memory that nobody looks at: the NIC thread watches doorbell
 * records. In trap mode the program's mapping is read-only, and stores come to trap.c, which
 * completes them through `alias`, a second mapping of the same memory. Two hardware registers of
 * 512 bytes lie at 0x800 and 0xa00 of a page (infiniband/mlx5dv.h, mlx5 provider).
 */
#include <linux/memfd.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emu.h"

enum { PAGE = 4096, OFF_DYN = 0x100, OFF_STATIC = 0x200 };

static struct emu_uar *mapped[65536]; /* by order of mapping; trap.c searches it */
static uint32_t nmapped;
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t next_page_id = 1;

struct emu_uar *uar_at(const void *addr)
{
	uint32_t i, n = nmapped;

	for (i = 0; i < n; i++) {
		struct emu_uar *u = mapped[i];

		if (u && u->app && (const char *)addr >= (char *)u->app &&
		    (const char *)addr < (char *)u->app + PAGE)
			return u;
	}
	return NULL;
}

static void remember(struct emu_uar *u)
{
	uint32_t i;

	pthread_mutex_lock(&mapped_lock);
	for (i = 0; i < nmapped && mapped[i]; i++)
		;
	if (i < 65536) {
		mapped[i] = u;
		if (i == nmapped)
			nmapped++;
	}
	pthread_mutex_unlock(&mapped_lock);
}

static void forget(struct emu_uar *u)
{
	uint32_t i;

	pthread_mutex_lock(&mapped_lock);
	for (i = 0; i < nmapped; i++)
		if (mapped[i] == u)
			mapped[i] = NULL;
	pthread_mutex_unlock(&mapped_lock);
}

static struct emu_uar *uar_new(struct emu_ctx *ctx, uint32_t type)
{
	struct emu_uar *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->memfd = -1;
	u->type = type;
	u->page_id = atomic_fetch_add(&next_page_id, 1);
	pthread_mutex_lock(&ctx->lock);
	u->next = ctx->uars;
	ctx->uars = u;
	pthread_mutex_unlock(&ctx->lock);
	return u;
}

static struct emu_uar *uar_by_page(struct emu_ctx *ctx, uint32_t page_id)
{
	struct emu_uar *u;

	pthread_mutex_lock(&ctx->lock);
	for (u = ctx->uars; u && u->page_id != page_id; u = u->next)
		;
	pthread_mutex_unlock(&ctx->lock);
	return u;
}

static int uar_alloc(struct emu_req *r)
{
	uint32_t type = req_u64(r, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 0);
	struct emu_uar *u;
	uint64_t offset;
	uint32_t length = PAGE;
	int h;

	if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		return EINVAL;
	u = uar_new(r->ctx, type);
	h = u ? handle_new(r->ctx, MLX5_IB_OBJECT_UAR, u->page_id) : -1;
	if (h < 0)
		return ENOMEM;
	u->handle = h;
	offset = ((uint64_t)OFF_DYN << 32) | ((uint64_t)u->page_id << 12);
	req_out_handle(r, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, h);
	req_out(r, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof(offset));
	req_out(r, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof(length));
	return req_out(r, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &u->page_id, sizeof(u->page_id));
}

int uar_method(struct emu_req *r, uint16_t method)
{
	uint64_t h;

	if (method == MLX5_IB_METHOD_UAR_OBJ_ALLOC)
		return uar_alloc(r);
	if (method != MLX5_IB_METHOD_UAR_OBJ_DESTROY)
		return EOPNOTSUPP;
	h = req_u64(r, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, UINT64_MAX);
	if (!handle_get(r->ctx, MLX5_IB_OBJECT_UAR, h))
		return EINVAL;
	handle_free(r->ctx, h);
	return 0;
}

static void *map_trapped(struct emu_uar *u)
{
	u->memfd = memfd_create("uar", MFD_CLOEXEC);
	if (u->memfd < 0 || ftruncate(u->memfd, PAGE))
		return MAP_FAILED;
	u->alias = real_mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, u->memfd, 0);
	return real_mmap(NULL, PAGE, PROT_READ, MAP_SHARED, u->memfd, 0);
}

/* Completion timestamps are nanoseconds of the monotonic clock: the page says how to convert. */
static void *map_clock_info(void)
{
	struct mlx5_ib_clock_info *c =
		real_mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct timespec ts;

	if (c == MAP_FAILED)
		return c;
	clock_gettime(CLOCK_REALTIME, &ts);
	c->cycles = now_ns();
	c->nsec = (uint64_t)ts.tv_sec * 1000000000u + ts.tv_nsec;
	c->mult = 1;
	c->mask = UINT64_MAX;
	c->overflow_period = UINT64_MAX >> 1;
	return c;
}

/* The offset is ours (uar_alloc), or a static-mode command of enum mlx5_ib_mmap_cmd. */
void *uar_mmap(struct emu_ctx *ctx, size_t len, int prot, off_t off)
{
	struct emu_uar *u;
	void *p;

	(void)prot;
	if (len != PAGE) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (off >> 20 == MLX5_IB_MMAP_CLOCK_INFO)
		return map_clock_info();
	if ((uint64_t)off >> 32 == OFF_DYN)
		u = uar_by_page(ctx, ((uint64_t)off >> 12) & 0xfffff);
	else if (((off >> 20) & 0xff) == MLX5_IB_MMAP_REGULAR_PAGE ||
		 ((off >> 20) & 0xff) == MLX5_IB_MMAP_ALLOC_WC ||
		 ((off >> 20) & 0xff) == MLX5_IB_MMAP_NC_PAGE)
		u = uar_new(ctx, ((off >> 20) & 0xff) == MLX5_IB_MMAP_NC_PAGE);
	else
		u = NULL;
	if (!u) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (self.seg->cfg.mode == EMU_TRAP)
		p = map_trapped(u);
	else
		p = real_mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
	if (p != MAP_FAILED) {
		u->app = p;
		remember(u);
	}
	return p;
}

static void unmap(struct emu_uar *u)
{
	forget(u);
	if (u->alias)
		real_munmap(u->alias, PAGE);
	if (u->memfd >= 0)
		real_close(u->memfd);
	u->alias = NULL;
	u->app = NULL;
	u->memfd = -1;
}

bool uar_munmap(void *addr, size_t len)
{
	struct emu_uar *u;

	if (len != PAGE || !nmapped)
		return false;
	u = uar_at(addr);
	if (!u || u->app != addr)
		return false;
	nic_lock();
	real_munmap(addr, PAGE);
	unmap(u);
	nic_unlock();
	return true;
}

void uar_close(struct emu_ctx *ctx)
{
	struct emu_uar *u;

	/* Pages that are still mapped stay mapped, as after close() of the real file. */
	while ((u = ctx->uars)) {
		ctx->uars = u->next;
		if (!u->app)
			free(u);
	}
}
