/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

int failures;

void check_at(const char *name, bool ok, const char *what, const char *file, int line)
{
	if (ok) {
		printf("ok %s\n", name);
	} else {
		printf("FAIL %s: %s, %s:%d\n", name, what, file, line);
		failures++;
	}
	fflush(stdout);
}

void must_at(int ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	printf("FAIL set-up: %s, %s:%d: %s\n", what, file, line, strerror(errno));
	exit(1);
}

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	for (i = 0; list && list[i] && !ctx; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static int or_default(int v, int dflt)
{
	return v ? v : dflt;
}

int qp_to_rts(struct ibv_qp *qp, uint32_t dest, const union ibv_gid *gid, const struct pair_opt *o)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			or_default(o->access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC),
	};
	int err = ibv_modify_qp(
		qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = dest;
	a.max_dest_rd_atomic = 16;
	a.min_rnr_timer = 1;
	a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	a.ah_attr.grh.dgid = *gid;
	a.ah_attr.grh.sgid_index = 1;
	a.ah_attr.grh.hop_limit = 1;
	err = err ? err
		  : ibv_modify_qp(qp, &a,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = or_default(o->timeout, 14);
	a.retry_cnt = or_default(o->retry_cnt, 7);
	a.rnr_retry = or_default(o->rnr_retry, 7);
	a.max_rd_atomic = 16;
	return err ? err
		   : ibv_modify_qp(qp, &a,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC);
}

void qp_to_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

static void side_open(struct pair *p, int i, const struct pair_opt *o)
{
	struct side *s = &p->s[i];
	struct ibv_qp_init_attr attr = {
		.qp_type = o->type ? o->type : IBV_QPT_RC,
		.srq = i ? p->srq : NULL,
		.sq_sig_all = o->sq_sig_all,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 220},
	};

	must((s->mem = calloc(1, MEM)) != NULL);
	must((s->mr = ibv_reg_mr(p->pd, s->mem, MEM,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
					 IBV_ACCESS_MW_BIND)) != NULL);
	must((s->cq = ibv_create_cq(p->ctx, or_default(o->cqe, 256), NULL, NULL, 0)) != NULL);
	attr.send_cq = attr.recv_cq = s->cq;
	must((s->qp = ibv_create_qp(p->pd, &attr)) != NULL);
}

void pair_open(struct pair *p, const struct pair_opt *o)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 64, .max_sge = 4}};
	union ibv_gid gid;

	memset(p, 0, sizeof(*p));
	must((p->ctx = open_device(o->dev)) != NULL);
	must((p->pd = ibv_alloc_pd(p->ctx)) != NULL);
	if (o->srq)
		must((p->srq = ibv_create_srq(p->pd, &srq)) != NULL);
	side_open(p, 0, o);
	side_open(p, 1, o);
	must(!ibv_query_gid(p->ctx, 1, 1, &gid));
	must(!qp_to_rts(p->s[0].qp, p->s[1].qp->qp_num, &gid, o));
	must(!qp_to_rts(p->s[1].qp, p->s[0].qp->qp_num, &gid, o));
}

void pair_close(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (p->s[i].qp)
			must(!ibv_destroy_qp(p->s[i].qp));
		must(!ibv_destroy_cq(p->s[i].cq));
		must(!ibv_dereg_mr(p->s[i].mr));
		free(p->s[i].mem);
	}
	if (p->srq)
		must(!ibv_destroy_srq(p->srq));
	must(!ibv_dealloc_pd(p->pd));
	must(!ibv_close_device(p->ctx));
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	struct timespec nap = {.tv_nsec = 20000};
	time_t until = time(NULL) + 4;
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc)) {
		if (time(NULL) > until)
			return (struct ibv_wc){.status = (enum ibv_wc_status) - 1};
		nanosleep(&nap, NULL);
	}
	return wc;
}

int post_write(struct pair *p, uint64_t id, size_t off, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)p->s[0].mem + off, len, p->s[0].mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)p->s[1].mem + off;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(p->s[0].qp, &wr, &bad);
}

int post_send(struct pair *p, int side, uint64_t id, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)p->s[side].mem, len, lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	return ibv_post_send(p->s[side].qp, &wr, &bad);
}

int post_recv(struct pair *p, int side, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)p->s[side].mem, len, p->s[side].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	if (side && p->srq)
		return ibv_post_srq_recv(p->srq, &wr, &bad);
	return ibv_post_recv(p->s[side].qp, &wr, &bad);
}

int wait_async(struct ibv_context *ctx)
{
	struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_async_event ev;

	if (poll(&fd, 1, 2000) != 1 || ibv_get_async_event(ctx, &ev))
		return -1;
	ibv_ack_async_event(&ev);
	return ev.event_type;
}
