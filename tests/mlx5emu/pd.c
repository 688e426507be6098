/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains, address handles, XRC domains and multicast membership.
 *
 * A PD is only a number that is unique in the segment; what uses it is counted in its handle.
 * An XRC domain is shared through the inode of the file it was opened with.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emu.h"

int pd_alloc(struct emu_req *r)
{
	struct ib_uverbs_alloc_pd_resp resp = {0};
	struct mlx5_ib_alloc_pd_resp drv;
	uint32_t pd = atomic_fetch_add(&self.seg->next_pd, 1);
	int h = handle_new(r->ctx, UVERBS_OBJECT_PD, pd);

	if (h < 0)
		return ENOMEM;
	resp.pd_handle = h;
	drv.pdn = pd & 0xffffff;
	req_out(r, UVERBS_ATTR_UHW_OUT, &drv, sizeof(drv));
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

int pd_dealloc(struct emu_ctx *ctx, uint64_t handle)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_PD, handle);

	if (!h)
		return EINVAL;
	if (atomic_load(&h->users))
		return EBUSY;
	handle_free(ctx, handle);
	return 0;
}

/* For ibv_import_pd(). */
int pd_query(struct emu_req *r)
{
	struct emu_handle *h = handle_get(r->ctx, UVERBS_OBJECT_PD,
					  req_u64(r, MLX5_IB_ATTR_QUERY_PD_HANDLE, UINT64_MAX));

	if (!h)
		return EINVAL;
	return req_out(r, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &h->slot, sizeof(h->slot));
}

/* The one thing mlx5 wants from the kernel for an address handle is the destination MAC. */
int ah_create(struct emu_req *r)
{
	struct ib_uverbs_create_ah cmd;
	struct ib_uverbs_create_ah_resp resp = {0};
	struct mlx5_ib_create_ah_resp drv = {.response_length = sizeof(drv)};
	int h, dev;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)))
		return EINVAL;
	if (!handle_get(r->ctx, UVERBS_OBJECT_PD, cmd.pd_handle) || cmd.attr.port_num != 1)
		return EINVAL;
	if (cmd.attr.is_global && cmd.attr.grh.sgid_index >= EMU_GIDS)
		return EINVAL;
	dev = dev_of_gid(cmd.attr.grh.dgid);
	memcpy(drv.dmac, "\x02\x77\0\0\0", 5);
	drv.dmac[5] = dev < 0 ? 0xff : dev;
	h = handle_new(r->ctx, UVERBS_OBJECT_AH, 0);
	if (h < 0)
		return ENOMEM;
	resp.ah_handle = h;
	req_out(r, UVERBS_ATTR_UHW_OUT, &drv, sizeof(drv));
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static bool file_key(uint32_t fd, uint64_t *dev, uint64_t *ino)
{
	struct stat st;

	if (fd == UINT32_MAX) { /* -1: private to this context */
		*dev = UINT64_MAX;
		*ino = now_ns();
		return true;
	}
	if (syscall(SYS_fstat, fd, &st))
		return false;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return true;
}

static int xrcd_slot(uint64_t dev, uint64_t ino, uint32_t oflags)
{
	struct emu_xrcd *x = self.seg->xrcd;
	int i, unused = -1;

	for (i = 0; i < EMU_XRCDS; i++) {
		if (!atomic_load(&x[i].h.used)) {
			unused = unused < 0 ? i : unused;
			continue;
		}
		if (x[i].st_dev == dev && x[i].st_ino == ino) {
			if ((oflags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
				return -EINVAL;
			atomic_fetch_add(&x[i].refs, 1);
			return i;
		}
	}
	if (!(oflags & O_CREAT))
		return -EAGAIN;
	if (unused < 0)
		return -ENOMEM;
	x[unused].st_dev = dev;
	x[unused].st_ino = ino;
	x[unused].h.proc = self.proc;
	atomic_store(&x[unused].refs, 1);
	atomic_store(&x[unused].users, 0);
	atomic_store(&x[unused].h.used, 2);
	return unused;
}

int xrcd_open(struct emu_req *r)
{
	struct ib_uverbs_open_xrcd cmd;
	struct ib_uverbs_open_xrcd_resp resp = {0};
	uint64_t dev, ino;
	int slot, h;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)))
		return EINVAL;
	if (cmd.oflags & ~(uint32_t)(O_CREAT | O_EXCL))
		return EINVAL;
	if (!file_key(cmd.fd, &dev, &ino))
		return EBADF;
	shm_lock(&self.seg->lock);
	slot = xrcd_slot(dev, ino, cmd.oflags);
	shm_unlock(&self.seg->lock);
	if (slot < 0)
		return -slot;
	h = handle_new(r->ctx, UVERBS_OBJECT_XRCD, slot);
	if (h < 0)
		return ENOMEM;
	resp.xrcd_handle = h;
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

int xrcd_close(struct emu_ctx *ctx, uint64_t handle)
{
	struct emu_handle *h = handle_get(ctx, UVERBS_OBJECT_XRCD, handle);
	struct emu_xrcd *x;

	if (!h)
		return EINVAL;
	if (atomic_load(&h->users))
		return EBUSY;
	x = &self.seg->xrcd[h->slot];
	shm_lock(&self.seg->lock);
	if (atomic_fetch_sub(&x->refs, 1) == 1)
		atomic_store(&x->h.used, 0);
	shm_unlock(&self.seg->lock);
	handle_free(ctx, handle);
	return 0;
}

/* ff00::/8, or an IPv4 group in IPv4-mapped form as RoCE v2 has it */
static bool is_group(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return gid[0] == 0xff || (!memcmp(gid, mapped, 12) && (gid[12] & 0xf0) == 0xe0);
}

int mcast_attach(struct emu_req *r, bool attach)
{
	struct ib_uverbs_attach_mcast cmd;
	struct emu_mcast *m = self.seg->mcast;
	struct emu_handle *h;
	int i, hit = -1, unused = -1;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &cmd, sizeof(cmd)))
		return EINVAL;
	h = handle_get(r->ctx, UVERBS_OBJECT_QP, cmd.qp_handle);
	if (!h || !is_group(cmd.gid) || self.seg->qp[h->slot].type != IBV_QPT_UD)
		return EINVAL;
	shm_lock(&self.seg->lock);
	for (i = 0; i < EMU_MCASTS; i++) {
		if (!atomic_load(&m[i].used))
			unused = unused < 0 ? i : unused;
		else if (m[i].qp == h->slot && !memcmp(m[i].gid, cmd.gid, 16))
			hit = i;
	}
	if (attach && hit < 0 && unused >= 0) {
		m[unused].qp = h->slot;
		memcpy(m[unused].gid, cmd.gid, 16);
		atomic_store(&m[unused].used, 1);
		hit = unused;
	} else if (!attach && hit >= 0) {
		atomic_store(&m[hit].used, 0);
	}
	shm_unlock(&self.seg->lock);
	return hit < 0 ? (attach ? ENOMEM : EINVAL) : 0;
}

bool mcast_member(uint32_t qp)
{
	int i;

	for (i = 0; i < EMU_MCASTS; i++)
		if (atomic_load(&self.seg->mcast[i].used) && self.seg->mcast[i].qp == qp)
			return true;
	return false;
}

void mcast_forget(uint32_t qp)
{
	int i;

	for (i = 0; i < EMU_MCASTS; i++)
		if (atomic_load(&self.seg->mcast[i].used) && self.seg->mcast[i].qp == qp)
			atomic_store(&self.seg->mcast[i].used, 0);
}
