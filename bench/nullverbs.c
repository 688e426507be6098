/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs.so.1 without NIC or kernel: work requests complete the moment they are posted and
 * move no data. Whatever a program takes on top of it is the program's, or that of a library
 * preloaded into it. See nullverbs.h for its two devices.
 *
 * Only what a benchmark (and librnice below it) calls is here. Objects are plain heap memory,
 * handles small and dense as a kernel would give them.
 */
#include "bench/nullverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))
#define container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum { NDEVICES = 2, MAX_WR = 1 << 15, MAX_CQE = 1 << 20 };

struct null_qp {
	struct ibv_qp ibv; /* first: the two pointers are interchangeable */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	/* under the send CQ's lock: */
	unsigned int outstanding; /* WRs not yet known to be complete */
	unsigned int unsignaled;  /* of these, posted since the last signaled one */
	uint64_t posted;
};

struct completion {
	uint64_t wr_id;
	struct null_qp *qp; /* NULL once it is destroyed */
	uint32_t qp_num;
	uint32_t byte_len;
	enum ibv_wc_opcode opcode;
	unsigned int retires; /* SQ entries it frees: its own and the unsignaled ones before it */
};

struct null_cq {
	struct ibv_cq ibv;
	/* null0 */
	uint64_t last_wr_id;
	uint32_t last_qp_num;
	int pending;
	/* null1 */
	pthread_spinlock_t lock;
	struct completion *ring; /* of mask + 1; head == tail: empty */
	uint32_t mask, head, tail;
	bool armed;
	int event_fd; /* writing end of the channel, -1 without one */
};

struct null_context {
	uint32_t pds, mrs, cqs, qps; /* handles given out; under ibv_context.mutex */
	struct verbs_context verbs;  /* last: struct ibv_context ends it */
};

static struct ibv_device devices[NDEVICES] = {
	{
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = "null0",
		.dev_name = "uverbs-null0",
		.dev_path = "/nonexistent/uverbs-null0",
		.ibdev_path = "/nonexistent/null0",
	},
	{
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = "null1",
		.dev_name = "uverbs-null1",
		.dev_path = "/nonexistent/uverbs-null1",
		.ibdev_path = "/nonexistent/null1",
	},
};

static struct null_cq *to_cq(struct ibv_cq *cq)
{
	return container(cq, struct null_cq, ibv);
}

static struct null_qp *to_qp(struct ibv_qp *qp)
{
	return container(qp, struct null_qp, ibv);
}

static uint32_t next_handle(struct ibv_context *ctx, uint32_t *counter)
{
	uint32_t handle;

	pthread_mutex_lock(&ctx->mutex);
	handle = (*counter)++;
	pthread_mutex_unlock(&ctx->mutex);
	return handle;
}

static struct null_context *to_context(struct ibv_context *ctx)
{
	return container(ctx, struct null_context, verbs.context);
}

/* ---- the data path of null0 ---- */

static int bare_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct null_cq *cq = to_cq(qp->send_cq);

	(void)bad_wr;
	for (; wr; wr = wr->next) {
		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		cq->last_wr_id = wr->wr_id;
		cq->last_qp_num = qp->qp_num;
		cq->pending++;
	}
	return 0;
}

static int bare_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct null_cq *cq = to_cq(ibcq);
	int n = 0;

	for (; n < num_entries && cq->pending > 0; n++, cq->pending--) {
		wc[n].wr_id = cq->last_wr_id;
		wc[n].status = IBV_WC_SUCCESS;
		wc[n].opcode = IBV_WC_RDMA_WRITE;
		wc[n].qp_num = cq->last_qp_num;
		wc[n].wc_flags = 0;
	}
	return n;
}

/* ---- the data path of null1 ---- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return IBV_WC_SEND;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_RDMA_WRITE;
	}
}

static void fire_event(struct null_cq *cq)
{
	struct ibv_cq *ibcq = &cq->ibv;

	cq->armed = false;
	if (cq->event_fd >= 0 && write(cq->event_fd, &ibcq, sizeof(ibcq)) < 0)
		perror("nullverbs: completion event");
}

/* Caller holds the CQ's lock. */
static int post_one(struct null_qp *qp, struct null_cq *cq, const struct ibv_send_wr *wr)
{
	struct completion *c = &cq->ring[cq->tail & cq->mask];

	if (qp->outstanding >= qp->init.cap.max_send_wr || cq->tail - cq->head > cq->mask)
		return ENOMEM;
	qp->outstanding++;
	qp->posted++;
	if (!(wr->send_flags & IBV_SEND_SIGNALED) && !qp->init.sq_sig_all) {
		qp->unsignaled++;
		return 0;
	}
	*c = (struct completion){
		.wr_id = wr->wr_id,
		.qp = qp,
		.qp_num = qp->ibv.qp_num,
		.byte_len = wr->num_sge ? wr->sg_list[0].length : 0,
		.opcode = wc_opcode(wr->opcode),
		.retires = qp->unsignaled + 1,
	};
	qp->unsignaled = 0;
	cq->tail++;
	if (cq->armed)
		fire_event(cq);
	return 0;
}

static int ring_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct null_qp *qp = to_qp(ibqp);
	struct null_cq *cq = to_cq(ibqp->send_cq);
	int err = 0;

	pthread_spin_lock(&cq->lock);
	for (; wr && !err; wr = wr->next) {
		err = post_one(qp, cq, wr);
		if (err)
			*bad_wr = wr;
	}
	pthread_spin_unlock(&cq->lock);
	return err;
}

static int ring_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct null_cq *cq = to_cq(ibcq);
	int n = 0;

	pthread_spin_lock(&cq->lock);
	for (; n < num_entries && cq->head != cq->tail; n++, cq->head++) {
		const struct completion *c = &cq->ring[cq->head & cq->mask];

		if (c->qp)
			c->qp->outstanding -= c->retires;
		wc[n].wr_id = c->wr_id;
		wc[n].status = IBV_WC_SUCCESS;
		wc[n].opcode = c->opcode;
		wc[n].byte_len = c->byte_len;
		wc[n].qp_num = c->qp_num;
		wc[n].wc_flags = 0;
	}
	pthread_spin_unlock(&cq->lock);
	return n;
}

static int null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)qp, (void)wr, (void)bad_wr;
	return 0;
}

static int null_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct null_cq *cq = to_cq(ibcq);

	(void)solicited_only;
	pthread_spin_lock(&cq->lock);
	cq->armed = true;
	pthread_spin_unlock(&cq->lock);
	return 0;
}

EXPORT uint64_t nullverbs_posted(struct ibv_qp *qp)
{
	struct null_cq *cq = to_cq(qp->send_cq);
	uint64_t posted;

	pthread_spin_lock(&cq->lock);
	posted = to_qp(qp)->posted;
	pthread_spin_unlock(&cq->lock);
	return posted;
}

/* ---- devices and contexts ---- */

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(NDEVICES + 1, sizeof(*list));

	if (!list)
		return NULL;
	for (int i = 0; i < NDEVICES; i++)
		list[i] = &devices[i];
	if (num_devices)
		*num_devices = NDEVICES;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return (__be64)(device - devices + 1);
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	const struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.max_msg_sz = 1u << 31,
		.pkey_tbl_len = 1,
		.lid = 1,
		.active_width = 2,  /* 4x */
		.active_speed = 32, /* EDR */
		.phys_state = 5,    /* LinkUp */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	(void)ctx;
	if (port != 1)
		return EINVAL;
	memset(attr, 0, len);
	memcpy(attr, &all, len < sizeof(all) ? len : sizeof(all));
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(ctx, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct null_context *null = calloc(1, sizeof(*null));
	struct ibv_context *ctx;

	if (!null)
		return NULL;
	null->verbs.sz = sizeof(null->verbs);
	null->verbs.query_port = query_port;
	ctx = &null->verbs.context;
	ctx->abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx->device = device;
	ctx->cmd_fd = -1;
	ctx->async_fd = -1;
	ctx->num_comp_vectors = 1;
	pthread_mutex_init(&ctx->mutex, NULL);
	ctx->ops.post_send = device == &devices[0] ? bare_post_send : ring_post_send;
	ctx->ops.poll_cq = device == &devices[0] ? bare_poll_cq : ring_poll_cq;
	ctx->ops.post_recv = null_post_recv;
	ctx->ops.req_notify_cq = null_req_notify_cq;
	return ctx;
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	free(to_context(ctx));
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	*attr = (struct ibv_device_attr){
		.fw_ver = "0",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.max_qp = 1 << 18,
		.max_qp_wr = MAX_WR,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_cq = 1 << 18,
		.max_cqe = MAX_CQE,
		.max_mr = 1 << 18,
		.max_pd = 1 << 18,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	(void)ctx;
	if (port != 1 || index != 0)
		return -1;
	memset(gid, 0, sizeof(*gid));
	gid->raw[15] = 1;
	return 0;
}

EXPORT int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	(void)ctx, (void)event;
	errno = EAGAIN; /* nothing ever goes wrong here */
	return -1;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "error";
}

/* ---- protection domains and memory ---- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->context = ctx;
	pd->handle = next_handle(ctx, &to_context(ctx)->pds);
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)iova, (void)access;
	if (!mr)
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->handle = next_handle(pd->context, &to_context(pd->context)->mrs);
	mr->lkey = mr->rkey = (mr->handle + 1) << 8;
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/* ---- completion channels and queues ---- */

/* A pipe, like the kernel's event file: it holds addresses of CQs. */
EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
	int fds[2];

	if (!channel)
		return NULL;
	if (pipe2(fds, O_CLOEXEC)) {
		free(channel);
		return NULL;
	}
	close(fds[1]); /* each CQ opens a writing end of its own */
	channel->context = ctx;
	channel->fd = fds[0];
	return channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (channel->refcnt)
		return EBUSY;
	close(channel->fd);
	free(channel);
	return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	ssize_t n = read(channel->fd, cq, sizeof(struct ibv_cq *));

	if (n != (ssize_t)sizeof(struct ibv_cq *)) {
		if (n >= 0)
			errno = EIO;
		return -1;
	}
	*cq_context = (*cq)->cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	(void)cq, (void)nevents;
}

static int open_writing_end(const struct ibv_comp_channel *channel)
{
	char path[64];

	if (!channel)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", channel->fd);
	return open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
}

static uint32_t power_of_two(uint32_t at_least)
{
	uint32_t n = 1;

	while (n < at_least)
		n *= 2;
	return n;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct null_cq *cq;

	(void)comp_vector;
	if (cqe < 1 || cqe > MAX_CQE) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->mask = power_of_two((uint32_t)cqe) - 1;
	cq->ring = calloc((size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return NULL;
	}
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	cq->event_fd = open_writing_end(channel);
	cq->ibv.context = ctx;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = (int)cq->mask + 1;
	cq->ibv.handle = next_handle(ctx, &to_context(ctx)->cqs);
	if (channel)
		channel->refcnt++;
	return &cq->ibv;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return cqe <= cq->cqe ? 0 : ENOSYS;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct null_cq *cq = to_cq(ibcq);

	if (ibcq->channel)
		ibcq->channel->refcnt--;
	if (cq->event_fd >= 0)
		close(cq->event_fd);
	free(cq->ring);
	free(cq);
	return 0;
}

/* ---- queue pairs ---- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct null_qp *qp;

	if (attr->cap.max_send_wr > MAX_WR || attr->cap.max_recv_wr > MAX_WR) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->init = *attr;
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	qp->ibv.qp_type = attr->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.handle = next_handle(pd->context, &to_context(pd->context)->qps);
	qp->ibv.qp_num = qp->ibv.handle + 0x10;
	return &qp->ibv;
}

EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct null_qp *qp = to_qp(ibqp);

	if (attr_mask & IBV_QP_STATE)
		ibqp->state = qp->attr.qp_state = attr->qp_state;
	if (attr_mask & IBV_QP_PATH_MTU)
		qp->attr.path_mtu = attr->path_mtu;
	if (attr_mask & IBV_QP_AV)
		qp->attr.ah_attr = attr->ah_attr;
	return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
			struct ibv_qp_init_attr *init_attr)
{
	struct null_qp *qp = to_qp(ibqp);

	(void)attr_mask;
	*attr = qp->attr;
	attr->cap = qp->init.cap;
	*init_attr = qp->init;
	return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct null_qp *qp = to_qp(ibqp);
	struct null_cq *cq = to_cq(ibqp->send_cq);

	pthread_spin_lock(&cq->lock);
	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (cq->ring[i & cq->mask].qp == qp)
			cq->ring[i & cq->mask].qp = NULL;
	pthread_spin_unlock(&cq->lock);
	free(qp);
	return 0;
}
