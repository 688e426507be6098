/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- posting ---- */

static void build_op(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	default:
		vu_die("no ibv_wr_* builder for opcode %d", (int)wr->opcode);
	}
}

static bool has_data(enum ibv_wr_opcode op)
{
	return op != IBV_WR_LOCAL_INV && op != IBV_WR_BIND_MW;
}

/* One buffer: librxe 44's wr_set_inline_data_list sends length 0. */
static void build_inline(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	size_t len = 0, at = 0;
	uint8_t *buf;

	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	buf = vu_alloc(len);
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(buf + at, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		at += wr->sg_list[i].length;
	}
	ibv_wr_set_inline_data(x, buf, len);
	memset(buf, 0x5a, len);
	free(buf);
}

/* A setter is due even where there is no byte: libmlx5 finishes a WQE in it. */
static void build_data(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		build_inline(x, wr);
	else if (wr->num_sge == 1)
		ibv_wr_set_sge(x, wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length);
	else
		ibv_wr_set_sge_list(x, (size_t)wr->num_sge, wr->sg_list);
}

static int post_builders(struct vu_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *first = wr;
	int err;

	ibv_wr_start(q->ex);
	for (; wr; wr = wr->next) {
		q->ex->wr_id = wr->wr_id;
		q->ex->wr_flags = wr->send_flags;
		build_op(q->ex, wr);
		if (q->qp->qp_type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(q->ex, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
					   wr->wr.ud.remote_qkey);
		if (has_data(wr->opcode))
			build_data(q->ex, wr);
	}
	err = ibv_wr_complete(q->ex);
	*bad = err ? first : NULL;
	return err;
}

int vu_qp_post(struct vu_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool wr_api)
{
	if (wr_api && q->ex)
		return post_builders(q, wr, bad);
	return ibv_post_send(q->qp, wr, bad);
}

bool vu_wr_can(const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		return true;
	for (int i = 1; i < wr->num_sge; i++)
		if (wr->sg_list[i].length != wr->sg_list[0].length)
			return false;
	return true;
}

struct ibv_send_wr vu_wr(enum ibv_wr_opcode op, struct ibv_sge *sge, uint64_t wr_id,
			 unsigned int flags)
{
	return (struct ibv_send_wr){.wr_id = wr_id,
				    .sg_list = sge,
				    .num_sge = sge ? 1 : 0,
				    .opcode = op,
				    .send_flags = flags};
}

void vu_wr_remote(struct ibv_send_wr *wr, const void *addr, uint32_t rkey)
{
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = (uintptr_t)addr;
		wr->wr.atomic.rkey = rkey;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)addr;
		wr->wr.rdma.rkey = rkey;
	}
}

void vu_must_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(qp, wr, &bad);

	vu_check(!err, "ibv_post_send: %s", strerror(err));
}

void vu_must_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad = NULL;
	int err = ibv_post_recv(qp, wr, &bad);

	vu_check(!err, "ibv_post_recv: %s", strerror(err));
}

/* ---- the ready-made pair ---- */

static void make_pair_qp(struct vu_pair *p, int i, const struct vu_pair_spec *s)
{
	struct ibv_qp_init_attr init = {.send_cq = p->scq[i].cq,
					.recv_cq = p->rcq[i].cq,
					.cap = {.max_send_wr = s->send_wr,
						.max_recv_wr = s->recv_wr,
						.max_send_sge = s->sge ? s->sge : 1,
						.max_recv_sge = 1,
						.max_inline_data = s->inline_data},
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = s->sig_all};

	vu_qp_create(&p->qp[i], &p->dev[i], &init, s->post);
}

void vu_pair_make_qps(struct vu_pair *p, const struct vu_pair_spec *s)
{
	p->link = s->link ? *s->link : vu_link_default(&p->dev[0]);
	for (int i = 0; i < 2; i++)
		make_pair_qp(p, i, s);
	vu_connect(&p->dev[0], p->qp[0].qp, &p->dev[1], p->qp[1].qp, &p->link);
}

void vu_pair_open(struct vu_pair *p, const struct vu_pair_spec *s)
{
	int cqe = s->cqe ? s->cqe : (int)s->send_wr + 1;
	int access;

	memset(p, 0, sizeof(*p));
	vu_dev_open_pair(p->dev);
	for (int i = 0; i < 2; i++) {
		access = i && s->access ? s->access : VU_ACCESS;
		vu_mem_alloc(&p->mem[i], &p->dev[i], s->mem, access);
		vu_cq_create(&p->scq[i], &p->dev[i], cqe, s->channel ? s->channel[i] : NULL,
			     VU_POLL_CQ, NULL);
		vu_cq_create(&p->rcq[i], &p->dev[i], (int)s->recv_wr + 1, NULL, VU_POLL_CQ, NULL);
	}
	vu_pair_make_qps(p, s);
}

void vu_pair_close(struct vu_pair *p)
{
	for (int i = 0; i < 2; i++) {
		if (p->qp[i].qp)
			vu_qp_destroy(&p->qp[i]);
		vu_cq_destroy(&p->scq[i]);
		vu_cq_destroy(&p->rcq[i]);
		vu_mem_free(&p->mem[i]);
		vu_dev_close(&p->dev[i]);
	}
}
