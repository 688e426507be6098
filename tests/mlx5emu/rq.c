/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder: what happens at the QP a message is for. Run by the initiator's NIC.
 *
 * Each call takes qp->rq_lock, so a QP cannot go away or be reset in the middle. Memory, receive
 * queue and CQ may belong to another process. Error behaviour follows the InfiniBand Architecture
 * Specification, volume 1, chapter 9.9 (responder error behaviour).
 */
#include "emu.h"

struct held {
	struct emu_mr *mr[32];
	struct iovec iov[32];
	int n;
};

static void release(struct held *h)
{
	while (h->n)
		mr_put(h->mr[--h->n]);
}

static bool comes_from(const struct emu_qp *qp, const struct emu_qp *from)
{
	const struct ib_uverbs_qp_dest *d = &qp->attr.dest;

	if (qp->attr.dest_qp_num != from->qpn)
		return false;
	if (d->is_global)
		return dev_of_gid(d->dgid) == (int)from->h.dev;
	return d->dlid == dev_lid(from->h.dev);
}

static bool types_match(uint32_t to, uint32_t from)
{
	return from == IBV_QPT_XRC_SEND ? to == IBV_QPT_XRC_RECV : to == from;
}

static enum rx_verdict admit(struct emu_qp *qp, const struct emu_qp *from)
{
	uint32_t state = atomic_load(&qp->state);

	if (atomic_load(&qp->h.used) != 2 || !types_match(qp->type, from->type))
		return RX_GONE;
	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR)
		return RX_GONE;
	if (qp->type != IBV_QPT_UD && !comes_from(qp, from))
		return RX_GONE;
	if (state == IBV_QPS_RTR && !qp->established && qp->type != IBV_QPT_UD) {
		qp->established = 1;
		atomic_fetch_or(&qp->events, 1u << IBV_EVENT_COMM_EST);
		shm_wake(qp->h.proc);
	}
	return RX_OK;
}

static enum rx_verdict nak(struct emu_qp *qp, enum rx_verdict v)
{
	if (qp->type == IBV_QPT_UC)
		return RX_DROP;
	qp_set_error(qp, v == RX_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	return v;
}

/* A copy that failed: the peer died, or its memory is gone although it is registered. */
static enum rx_verdict copy_failed(int err)
{
	return err == ESRCH ? RX_GONE : RX_OP_ERR;
}

static bool rq_take(struct emu_qp *qp)
{
	struct emu_rx *rx = &qp->rx;
	uint32_t db, size = 1u << qp->rq_shift, n;
	uint64_t at;

	if (!qp->rq_cnt)
		return false;
	if (rx->pi == rx->ci) {
		if (mem_record(qp->h.proc, qp->dbrec, &db))
			return false;
		rx->pi = db;
		if (rx->pi == rx->ci)
			return false;
	}
	at = qp->buf + (uint64_t)(rx->ci & (qp->rq_cnt - 1)) * size;
	if (mem_read(qp->h.proc, at, rx->sge, size))
		return false;
	for (n = 0; n < size / 16 && be32toh(rx->sge[n].lkey) != MLX5_INVALID_LKEY; n++)
		;
	rx->nsge = n;
	rx->wqe_index = rx->ci++;
	rx->from_srq = 0;
	rx->proc = qp->h.proc;
	rx->pd = qp->pd;
	rx->cq = qp->rcq;
	rx->uidx = qp->uidx;
	return true;
}

static bool srq_take_for(struct emu_qp *qp, struct emu_srq *srq)
{
	struct emu_rx *rx = &qp->rx;
	bool ok;

	shm_lock(&srq->lock);
	ok = atomic_load(&srq->h.used) == 2 && srq_take(srq, rx);
	shm_unlock(&srq->lock);
	rx->proc = srq->h.proc;
	rx->pd = srq->pd;
	/* XRC completions go to the SRQ's CQ and name the SRQ, others go by the QP. */
	rx->cq = srq->type == IB_UVERBS_SRQT_XRC ? srq->cq : qp->rcq;
	rx->uidx = srq->type == IB_UVERBS_SRQT_XRC ? srq->uidx : qp->uidx;
	return ok;
}

static enum rx_verdict take_receive(struct emu_qp *qp, const struct rx_msg *m)
{
	struct emu_srq *srq = NULL;

	if (qp->rx.busy) { /* the sender gave up in the middle of a message: use the WQE again */
		qp->rx.done = 0;
		return RX_OK;
	}
	if (qp->type == IBV_QPT_XRC_RECV) {
		srq = srq_find(m->w->xrc_srqn);
		if (!srq || srq->type != IB_UVERBS_SRQT_XRC || srq->xrcd != qp->xrcd)
			return nak(qp, RX_INVALID);
	} else if (qp->srq >= 0) {
		srq = &self.seg->srq[qp->srq];
	}
	if (!(srq ? srq_take_for(qp, srq) : rq_take(qp)))
		return qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD ? RX_DROP : RX_RNR;
	qp->rx.busy = 1;
	qp->rx.done = 0;
	return RX_OK;
}

static void fail_receive(struct emu_qp *qp, uint8_t syndrome, uint8_t vendor)
{
	struct emu_rx *rx = &qp->rx;
	struct emu_cqe e = {
		.opcode = MLX5_CQE_RESP_ERR,
		.syndrome = syndrome,
		.vendor = vendor,
		.qpn = qp->qpn,
		.uidx = rx->uidx,
		.wqe_counter = rx->wqe_index,
	};

	rx->busy = 0;
	if (rx->cq >= 0)
		cqe_write(&self.seg->cq[rx->cq], &e);
	qp_set_error(qp, 0);
}

/* The places for bytes [off, off + len) of the receive list. 0, 1 too short, 2 protection. */
static int scatter_list(const struct emu_qp *qp, uint64_t off, uint64_t len, struct held *h)
{
	const struct emu_rx *rx = &qp->rx;
	uint64_t n, addr;
	uint32_t i;

	for (i = 0; i < rx->nsge && len; i++) {
		uint64_t size = be32toh(rx->sge[i].byte_count);

		if (off >= size) {
			off -= size;
			continue;
		}
		n = len < size - off ? len : size - off;
		h->mr[h->n] = mr_get(be32toh(rx->sge[i].lkey), rx->proc, rx->pd, qp->qpn,
				     be64toh(rx->sge[i].addr) + off, n, IBV_ACCESS_LOCAL_WRITE,
				     false, &addr);
		if (!h->mr[h->n])
			return 2;
		h->iov[h->n++] = (struct iovec){(void *)(uintptr_t)addr, n};
		len -= n;
		off = 0;
	}
	return len ? 1 : 0;
}

static uint64_t capacity(const struct emu_rx *rx)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rx->nsge; i++)
		sum += be32toh(rx->sge[i].byte_count);
	return sum;
}

static enum rx_verdict place(struct emu_qp *qp, const struct rx_msg *m)
{
	struct held h = {.n = 0};
	int err = scatter_list(qp, qp->rx.done, m->len, &h);

	if (err) {
		release(&h);
		if (err == 2)
			fail_receive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
		else
			fail_receive(qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x4f);
		return err == 2 ? RX_OP_ERR : RX_INVALID;
	}
	err = mem_push(qp->rx.proc, h.iov, h.n, m->iov, m->niov);
	release(&h);
	qp->rx.done += m->len;
	return err ? copy_failed(err) : RX_OK;
}

/* The 40 bytes before a datagram: an IPv4 header in the last 20 for RoCE v2, a GRH for IB. */
static enum rx_verdict place_grh(struct emu_qp *qp, const struct rx_msg *m)
{
	uint8_t grh[40] = {0};
	struct iovec iov = {grh, sizeof(grh)};
	struct rx_msg g = {.from = m->from, .w = m->w, .len = 40, .iov = &iov, .niov = 1};
	uint32_t src = dev_ipv4(m->from->h.dev), dst = dev_ipv4(qp->h.dev);
	uint16_t total = htobe16(20 + 8 + 12 + 8 + m->len + 4);

	if (self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET) {
		grh[20] = 0x45;
		memcpy(grh + 22, &total, 2);
		grh[28] = 64;
		grh[29] = 17;
		memcpy(grh + 32, &src, 4);
		memcpy(grh + 36, &dst, 4);
	} else {
		grh[0] = 0x60;
		grh[6] = 0x1b;
		grh[7] = 64;
		dev_gid(m->from->h.dev, 0, grh + 8);
		dev_gid(qp->h.dev, 0, grh + 24);
	}
	return place(qp, &g);
}

static uint8_t cqe_opcode(uint8_t wqe_opcode)
{
	switch (wqe_opcode) {
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return MLX5_CQE_RESP_WR_IMM;
	case MLX5_OPCODE_SEND_IMM:
		return MLX5_CQE_RESP_SEND_IMM;
	case MLX5_OPCODE_SEND_INVAL:
		return MLX5_CQE_RESP_SEND_INV;
	default:
		return MLX5_CQE_RESP_SEND;
	}
}

static void finish_receive(struct emu_qp *qp, const struct rx_msg *m, uint32_t bytes)
{
	struct emu_rx *rx = &qp->rx;
	bool eth = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET;
	struct emu_cqe e = {
		.opcode = cqe_opcode(m->w->opcode),
		.solicited = m->w->fm_ce_se & MLX5_WQE_CTRL_SOLICITED,
		.qpn = qp->qpn,
		.uidx = rx->uidx,
		.byte_cnt = bytes,
		.imm = m->w->imm,
		.wqe_counter = rx->wqe_index,
		.src_qp = m->from->qpn,
		.sl = m->w->sl,
		.slid = eth ? 0 : dev_lid(m->from->h.dev),
		.grh = qp->type == IBV_QPT_UD && (eth || (m->w->grh_gid_fl >> 30 & 1)),
	};

	if (e.opcode == MLX5_CQE_RESP_SEND)
		e.imm = 0;
	rx->busy = 0;
	if (rx->cq >= 0)
		cqe_write(&self.seg->cq[rx->cq], &e);
}

static enum rx_verdict do_send(struct emu_qp *qp, const struct rx_msg *m)
{
	uint32_t extra = qp->type == IBV_QPT_UD ? 40 : 0;
	enum rx_verdict v = RX_OK;

	if (m->first)
		v = take_receive(qp, m);
	if (v == RX_OK && m->first && capacity(&qp->rx) < m->w->len + extra) {
		fail_receive(qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x4f);
		return RX_INVALID;
	}
	if (v == RX_OK && extra)
		v = place_grh(qp, m);
	if (v == RX_OK)
		v = place(qp, m);
	if (v != RX_OK || !m->last)
		return v;
	if (m->w->opcode == MLX5_OPCODE_SEND_INVAL &&
	    mw_invalidate(be32toh(m->w->imm), qp->rx.proc, qp->rx.pd, qp->qpn)) {
		fail_receive(qp, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0x52);
		return RX_ACCESS;
	}
	finish_receive(qp, m, m->w->len + extra);
	return RX_OK;
}

enum rx_verdict rq_send(struct emu_qp *qp, const struct rx_msg *m)
{
	enum rx_verdict v;

	shm_lock(&qp->rq_lock);
	v = admit(qp, m->from);
	if (v == RX_OK && qp->type == IBV_QPT_UD && m->w->qkey != qp->attr.qkey)
		v = RX_DROP;
	if (v == RX_OK)
		v = do_send(qp, m);
	shm_unlock(&qp->rq_lock);
	return v;
}

/*
 * Checks of a one-sided access. Zero bytes need no valid key. An XRC target has no PD of its own:
 * that of the SRQ named in the request decides.
 */
static enum rx_verdict reach(struct emu_qp *qp, const struct rx_msg *m, uint32_t access,
			     struct emu_mr **mr, uint64_t *addr)
{
	uint32_t pd = qp->pd;

	*mr = NULL;
	if (qp->type == IBV_QPT_XRC_RECV) {
		struct emu_srq *srq = srq_find(m->w->xrc_srqn);

		if (!srq || srq->xrcd != qp->xrcd || srq->h.proc != qp->h.proc)
			return nak(qp, RX_INVALID);
		pd = srq->pd;
	}
	if (!(qp->attr.qp_access_flags & access))
		return nak(qp, access == IBV_ACCESS_REMOTE_WRITE ? RX_ACCESS : RX_INVALID);
	if (!m->w->len && access != IBV_ACCESS_REMOTE_ATOMIC)
		return RX_OK;
	*mr = mr_get(m->w->rkey, qp->h.proc, pd, qp->qpn, m->w->raddr,
		     access == IBV_ACCESS_REMOTE_ATOMIC ? 8 : m->w->len, access, true, addr);
	return *mr ? RX_OK : nak(qp, RX_ACCESS);
}

static enum rx_verdict do_write(struct emu_qp *qp, const struct rx_msg *m)
{
	struct emu_mr *mr;
	uint64_t addr = 0;
	enum rx_verdict v = reach(qp, m, IBV_ACCESS_REMOTE_WRITE, &mr, &addr);
	struct iovec to;
	int err = 0;

	if (v != RX_OK)
		return v;
	to = (struct iovec){(void *)(uintptr_t)(addr + m->off), m->len};
	if (mr && m->len)
		err = mem_push(qp->h.proc, &to, 1, m->iov, m->niov);
	if (mr)
		mr_put(mr);
	if (err)
		return copy_failed(err);
	if (!m->last || m->w->opcode != MLX5_OPCODE_RDMA_WRITE_IMM)
		return RX_OK;
	v = take_receive(qp, m);
	if (v == RX_OK)
		finish_receive(qp, m, m->w->len);
	return v;
}

enum rx_verdict rq_write(struct emu_qp *qp, const struct rx_msg *m)
{
	enum rx_verdict v;

	shm_lock(&qp->rq_lock);
	v = admit(qp, m->from);
	if (v == RX_OK)
		v = do_write(qp, m);
	shm_unlock(&qp->rq_lock);
	return v;
}

enum rx_verdict rq_read(struct emu_qp *qp, const struct rx_msg *m)
{
	struct emu_mr *mr = NULL;
	struct iovec from;
	enum rx_verdict v;
	uint64_t addr = 0;
	int err = 0;

	shm_lock(&qp->rq_lock);
	v = admit(qp, m->from);
	if (v == RX_OK && !qp->attr.max_dest_rd_atomic)
		v = nak(qp, RX_INVALID);
	if (v == RX_OK)
		v = reach(qp, m, IBV_ACCESS_REMOTE_READ, &mr, &addr);
	from = (struct iovec){(void *)(uintptr_t)(addr + m->off), m->len};
	if (v == RX_OK && mr && m->len)
		err = mem_pull(qp->h.proc, &from, 1, m->iov, m->niov);
	if (mr)
		mr_put(mr);
	shm_unlock(&qp->rq_lock);
	return err ? copy_failed(err) : v;
}

static int apply_atomic(struct emu_qp *qp, const struct rx_msg *m, uint64_t addr, uint64_t *old)
{
	uint64_t next;
	int err;

	shm_lock(&self.seg->atomic_lock); /* IBV_ATOMIC_HCA: atomic among RDMA atomics */
	err = mem_read(qp->h.proc, addr, old, 8);
	if (!err) {
		next = m->w->opcode == MLX5_OPCODE_ATOMIC_FA ? *old + m->w->swap_add
							     : m->w->swap_add;
		if (m->w->opcode == MLX5_OPCODE_ATOMIC_FA || *old == m->w->compare)
			err = mem_write(qp->h.proc, addr, &next, 8);
	}
	shm_unlock(&self.seg->atomic_lock);
	return err;
}

enum rx_verdict rq_atomic(struct emu_qp *qp, const struct rx_msg *m, uint64_t *old)
{
	struct emu_mr *mr = NULL;
	enum rx_verdict v;
	uint64_t addr = 0;
	int err = 0;

	shm_lock(&qp->rq_lock);
	v = admit(qp, m->from);
	if (v == RX_OK && (!qp->attr.max_dest_rd_atomic || (m->w->raddr & 7)))
		v = nak(qp, RX_INVALID);
	if (v == RX_OK)
		v = reach(qp, m, IBV_ACCESS_REMOTE_ATOMIC, &mr, &addr);
	if (v == RX_OK)
		err = apply_atomic(qp, m, addr, old);
	if (mr)
		mr_put(mr);
	shm_unlock(&qp->rq_lock);
	return err ? copy_failed(err) : v;
}

static void flush_one(struct emu_qp *qp)
{
	struct emu_rx *rx = &qp->rx;
	struct emu_cqe e = {
		.opcode = MLX5_CQE_RESP_ERR,
		.syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
		.vendor = 0xf9,
		.qpn = qp->qpn,
		.uidx = qp->uidx,
		.wqe_counter = rx->ci++,
	};

	cqe_write(&self.seg->cq[qp->rcq], &e);
}

/* Own QP in ERR: every posted receive completes with a flush error. */
void rq_flush(struct emu_qp *qp)
{
	struct emu_rx *rx = &qp->rx;

	shm_lock(&qp->rq_lock);
	if (qp->rq_cnt) {
		if (rx->busy) { /* consumed by a message that never ended */
			rx->busy = 0;
			rx->ci--;
		}
		rx->pi = be32toh(*(volatile uint32_t *)(uintptr_t)qp->dbrec);
		while (rx->pi != rx->ci)
			flush_one(qp);
	} else if (qp->srq >= 0 && !qp->last_wqe_sent) {
		qp->last_wqe_sent = 1;
		atomic_fetch_or(&qp->events, 1u << IBV_EVENT_QP_LAST_WQE_REACHED);
	}
	shm_unlock(&qp->rq_lock);
}
