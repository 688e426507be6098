/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ioctl dispatcher: attributes in and out, and which method answers which request.
 *
 * Rules (rdma/rdma_user_ioctl_cmds.h, and libibverbs/cmd_ioctl.c for the sender's side): input of
 * up to 8 bytes travels in attr.data itself, longer input by pointer; output always by pointer;
 * objects and files come back in attr.data. What is not known is refused with EPROTONOSUPPORT,
 * which makes the library try the older write command, itself sent through INVOKE_WRITE.
 */
#include <string.h>

#include "emu.h"

struct ib_uverbs_attr *req_attr(struct emu_req *r, uint16_t id)
{
	uint32_t i;

	for (i = 0; i < r->hdr->num_attrs; i++)
		if (r->hdr->attrs[i].attr_id == id)
			return &r->hdr->attrs[i];
	return NULL;
}

int req_in(struct emu_req *r, uint16_t id, void *out, size_t len)
{
	struct ib_uverbs_attr *a = req_attr(r, id);
	size_t n;

	memset(out, 0, len);
	if (!a)
		return EINVAL;
	n = a->len < len ? a->len : len;
	memcpy(out, a->len <= sizeof(a->data) ? (void *)&a->data : (void *)(uintptr_t)a->data, n);
	return 0;
}

/* Objects, descriptors and small constants; the low `len` bytes count, if a length is given. */
uint64_t req_u64(struct emu_req *r, uint16_t id, uint64_t dflt)
{
	struct ib_uverbs_attr *a = req_attr(r, id);
	uint64_t v = 0;

	if (!a)
		return dflt;
	if (!a->len || a->len > sizeof(v))
		return a->data;
	memcpy(&v, &a->data, a->len);
	return v;
}

int req_out(struct emu_req *r, uint16_t id, const void *data, size_t len)
{
	struct ib_uverbs_attr *a = req_attr(r, id);

	if (!a)
		return 0;
	memset((void *)(uintptr_t)a->data, 0, a->len);
	memcpy((void *)(uintptr_t)a->data, data, a->len < len ? a->len : len);
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}

void req_out_handle(struct emu_req *r, uint16_t id, uint64_t value)
{
	struct ib_uverbs_attr *a = req_attr(r, id);

	if (!a)
		return;
	a->data = value;
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

static int destroy_u32(struct emu_req *r, uint16_t handle_id, uint16_t resp_id,
		       int (*destroy)(struct emu_ctx *, uint64_t, uint32_t *))
{
	uint32_t events = 0;
	int err = destroy(r->ctx, req_u64(r, handle_id, UINT64_MAX), &events);

	return err ? err : req_out(r, resp_id, &events, sizeof(events));
}

static int cq_method(struct emu_req *r, uint16_t method)
{
	struct ib_uverbs_destroy_cq_resp resp = {0};
	int err;

	if (method == UVERBS_METHOD_CQ_CREATE)
		return cq_create(r);
	if (method != UVERBS_METHOD_CQ_DESTROY)
		return EPROTONOSUPPORT;
	err = cq_destroy(r->ctx, req_u64(r, UVERBS_ATTR_DESTROY_CQ_HANDLE, UINT64_MAX), &resp);
	return err ? err : req_out(r, UVERBS_ATTR_DESTROY_CQ_RESP, &resp, sizeof(resp));
}

static int qp_method(struct emu_req *r, uint16_t method)
{
	if (method == UVERBS_METHOD_QP_CREATE)
		return qp_create(r);
	if (method == UVERBS_METHOD_QP_DESTROY)
		return destroy_u32(r, UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_ATTR_DESTROY_QP_RESP,
				   qp_remove);
	return EPROTONOSUPPORT;
}

static int srq_method(struct emu_req *r, uint16_t method)
{
	if (method == UVERBS_METHOD_SRQ_CREATE)
		return srq_create(r);
	if (method == UVERBS_METHOD_SRQ_DESTROY)
		return destroy_u32(r, UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_ATTR_DESTROY_SRQ_RESP,
				   srq_destroy);
	return EPROTONOSUPPORT;
}

static int pd_method(struct emu_req *r, uint16_t method)
{
	if (method == UVERBS_METHOD_PD_DESTROY)
		return pd_dealloc(r->ctx, req_u64(r, UVERBS_ATTR_DESTROY_PD_HANDLE, UINT64_MAX));
	if (method == MLX5_IB_METHOD_PD_QUERY)
		return pd_query(r);
	return EPROTONOSUPPORT;
}

static int mr_method(struct emu_req *r, uint16_t method)
{
	if (method == UVERBS_METHOD_MR_DESTROY)
		return mr_dereg(r->ctx, req_u64(r, UVERBS_ATTR_DESTROY_MR_HANDLE, UINT64_MAX));
	if (method == UVERBS_METHOD_QUERY_MR)
		return mr_query(r);
	return EOPNOTSUPP; /* device memory, dmabuf, advice */
}

static int ah_destroy(struct emu_req *r)
{
	uint64_t h = req_u64(r, UVERBS_ATTR_DESTROY_AH_HANDLE, UINT64_MAX);

	if (!handle_get(r->ctx, UVERBS_OBJECT_AH, h))
		return EINVAL;
	handle_free(r->ctx, h);
	return 0;
}

static int async_alloc(struct emu_req *r)
{
	if (!r->ctx->async)
		r->ctx->async = queue_new();
	if (!r->ctx->async)
		return ENOMEM;
	req_out_handle(r, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, queue_fd(r->ctx->async));
	return 0;
}

static int dispatch(struct emu_req *r)
{
	uint16_t object = r->hdr->object_id, method = r->hdr->method_id;

	switch (object) {
	case UVERBS_OBJECT_DEVICE:
		return dev_method(r, method);
	case UVERBS_OBJECT_PD:
		return pd_method(r, method);
	case UVERBS_OBJECT_CQ:
		return cq_method(r, method);
	case UVERBS_OBJECT_QP:
		return qp_method(r, method);
	case UVERBS_OBJECT_SRQ:
		return srq_method(r, method);
	case UVERBS_OBJECT_MR:
		return mr_method(r, method);
	case UVERBS_OBJECT_MW:
		return mw_dealloc(r->ctx, req_u64(r, UVERBS_ATTR_DESTROY_MW_HANDLE, UINT64_MAX));
	case UVERBS_OBJECT_AH:
		return ah_destroy(r);
	case UVERBS_OBJECT_XRCD:
		return xrcd_close(r->ctx, req_u64(r, UVERBS_ATTR_DESTROY_XRCD_HANDLE, UINT64_MAX));
	case UVERBS_OBJECT_ASYNC_EVENT:
		return async_alloc(r);
	case MLX5_IB_OBJECT_UAR:
		return uar_method(r, method);
	case MLX5_IB_OBJECT_DEVX:
	case MLX5_IB_OBJECT_DEVX_OBJ:
	case MLX5_IB_OBJECT_DEVX_UMEM:
		return devx_method(r, object, method);
	default:
		return EOPNOTSUPP;
	}
}

int uverbs_ioctl(struct emu_ctx *ctx, void *arg)
{
	struct emu_req r = {.ctx = ctx, .hdr = arg};
	int err = dispatch(&r);

	if (err)
		emu_log("object %#x method %#x cmd %#x: %s", r.hdr->object_id, r.hdr->method_id,
			r.hdr->object_id == UVERBS_OBJECT_DEVICE && !r.hdr->method_id
				? (unsigned)req_u64(&r, UVERBS_ATTR_WRITE_CMD, 0)
				: 0,
			strerror(err));
	return err;
}

static int handle_in(struct emu_req *r, uint64_t *handle)
{
	uint32_t h;
	int err = req_in(r, UVERBS_ATTR_CORE_IN, &h, sizeof(h));

	*handle = h;
	return err;
}

#define EX(cmd) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (cmd))

/* The write commands, in the numbering of enum ib_uverbs_write_cmds: long, but only a table. */
int write_cmd(struct emu_req *r, uint32_t cmd)
{
	uint64_t handle;

	switch (cmd) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		return dev_query(r, false);
	case EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE):
		return dev_query(r, true);
	case IB_USER_VERBS_CMD_ALLOC_PD:
		return pd_alloc(r);
	case IB_USER_VERBS_CMD_CREATE_AH:
		return ah_create(r);
	case IB_USER_VERBS_CMD_REG_MR:
		return mr_reg(r);
	case IB_USER_VERBS_CMD_REREG_MR:
		return mr_rereg(r);
	case IB_USER_VERBS_CMD_ALLOC_MW:
		return mw_alloc(r);
	case IB_USER_VERBS_CMD_DEALLOC_MW:
		return handle_in(r, &handle) ? EINVAL : mw_dealloc(r->ctx, handle);
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return channel_create(r);
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		return cq_resize(r);
	case IB_USER_VERBS_CMD_MODIFY_QP:
	case EX(IB_USER_VERBS_EX_CMD_MODIFY_QP):
		return qp_modify(r);
	case IB_USER_VERBS_CMD_QUERY_QP:
		return qp_query(r);
	case IB_USER_VERBS_CMD_OPEN_QP:
		return qp_open(r);
	case IB_USER_VERBS_CMD_MODIFY_SRQ:
		return srq_modify(r);
	case IB_USER_VERBS_CMD_QUERY_SRQ:
		return srq_query(r);
	case IB_USER_VERBS_CMD_OPEN_XRCD:
		return xrcd_open(r);
	case IB_USER_VERBS_CMD_CLOSE_XRCD:
		return handle_in(r, &handle) ? EINVAL : xrcd_close(r->ctx, handle);
	case IB_USER_VERBS_CMD_ATTACH_MCAST:
	case IB_USER_VERBS_CMD_DETACH_MCAST:
		return mcast_attach(r, cmd == IB_USER_VERBS_CMD_ATTACH_MCAST);
	default:
		return EOPNOTSUPP;
	}
}
