/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester: runs this process's send queues, WQE by WQE, and writes their completions.
 *
 * The whole operation is done here, at the initiator, with the peer's queues and memory reached
 * through rq.c. WQEs of a QP run strictly in order, which is stronger than the hardware's rules
 * (fences are implied). Timeouts and RNR follow volume 1, chapter 9.7 of the InfiniBand
 * Architecture Specification.
 */
#include "emu.h"

enum step { STEP_DONE, STEP_WAIT, STEP_MORE, STEP_FAILED };

enum { BURST = 16, PIECE = 1 << 20 };

struct gathered {
	struct emu_mr *mr[64];
	struct iovec iov[64];
	int n, nmr;
};

static void release(struct gathered *g)
{
	while (g->nmr)
		mr_put(g->mr[--g->nmr]);
}

/* The local places of bytes [off, off + len); false: a local protection error. */
static bool gather(const struct emu_qp *qp, const struct emu_wqe *w, uint64_t off, uint64_t len,
		   uint32_t access, struct gathered *g)
{
	uint64_t n, addr;
	uint32_t i;

	g->n = g->nmr = 0;
	for (i = 0; i < w->nsge && len; i++) {
		if (off >= w->sge[i].len) {
			off -= w->sge[i].len;
			continue;
		}
		n = len < w->sge[i].len - off ? len : w->sge[i].len - off;
		addr = w->sge[i].addr + off;
		if (!w->is_inline) {
			g->mr[g->nmr] = mr_get(w->sge[i].lkey, qp->h.proc, qp->pd, qp->qpn, addr, n,
					       access, false, &addr);
			if (!g->mr[g->nmr++]) {
				g->nmr--;
				release(g);
				return false;
			}
		}
		g->iov[g->n++] = (struct iovec){(void *)(uintptr_t)addr, n};
		len -= n;
		off = 0;
	}
	return true;
}

static void complete(struct emu_qp *qp, const struct emu_wqe *w, uint8_t syndrome, uint8_t vendor)
{
	struct emu_cqe e = {
		.opcode = syndrome ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ,
		.wqe_opcode = w->opcode,
		.syndrome = syndrome,
		.vendor = vendor,
		.qpn = qp->qpn,
		.uidx = qp->uidx,
		.byte_cnt = w->len,
		.wqe_counter = w->index,
	};
	struct emu_tx *tx = &qp->tx;

	tx->ci += (w->ds + 3) / 4;
	tx->done = 0;
	tx->retry_since = tx->rnr_since = 0;
	tx->rnr_count = 0;
	if ((!syndrome && !wqe_signaled(qp, w)) || qp->scq < 0)
		return;
	if (model_on() && syndrome)
		model_acks(qp, UINT64_MAX); /* what was acknowledged comes first */
	else if (model_on() && model_delay(qp, w, &e))
		return;
	cqe_write(&self.seg->cq[qp->scq], &e);
}

/* A failed WQE completes, and the QP stops: ERR, or SQE for the unreliable services. */
static enum step fail(struct emu_qp *qp, const struct emu_wqe *w, uint8_t syndrome, uint8_t vendor)
{
	complete(qp, w, syndrome, vendor);
	if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_UC)
		atomic_store(&qp->state, IBV_QPS_SQE);
	else
		qp_set_error(qp, 0);
	return STEP_FAILED;
}

static uint64_t retry_total_ns(const struct emu_qp *qp)
{
	uint64_t ns = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
	uint64_t cap = (uint64_t)self.seg->cfg.retry_cap_ms * 1000000;

	if (!qp->attr.timeout)
		return UINT64_MAX; /* 0: wait for ever */
	return cap && ns > cap ? cap : ns;
}

static enum step no_answer(struct emu_qp *qp, const struct emu_wqe *w)
{
	uint64_t now = now_ns();

	if (!qp->tx.retry_since)
		qp->tx.retry_since = now;
	if (now - qp->tx.retry_since > retry_total_ns(qp))
		return fail(qp, w, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81);
	qp->tx.done = 0; /* the message starts again */
	return STEP_WAIT;
}

/*
 * No receive was posted. rnr_retry 7 waits for ever. Otherwise the NAKs are counted by the
 * responder's timer; between two of them the queue is looked at all the time, unless the RNR
 * timing model wants it exact.
 */
static enum step not_ready(struct emu_qp *qp, const struct emu_wqe *w, const struct emu_qp *peer)
{
	struct emu_tx *tx = &qp->tx;
	uint64_t now = now_ns(), wait = rnr_timer_ns(peer->attr.min_rnr_timer);

	tx->retry_since = 0;
	if (tx->rnr_since && now < tx->rnr_next)
		return STEP_WAIT;
	if (qp->attr.rnr_retry != 7 && tx->rnr_count >= qp->attr.rnr_retry)
		return fail(qp, w, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, 0x87);
	tx->rnr_since = now;
	tx->rnr_next = now + wait;
	tx->rnr_count++;
	return STEP_WAIT;
}

static enum step verdict(struct emu_qp *qp, const struct emu_wqe *w, const struct emu_qp *peer,
			 enum rx_verdict v)
{
	switch (v) {
	case RX_OK:
		qp->tx.retry_since = 0;
		return STEP_DONE;
	case RX_RNR:
		return not_ready(qp, w, peer);
	case RX_GONE:
		return no_answer(qp, w);
	case RX_ACCESS:
		return fail(qp, w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88);
	case RX_INVALID:
		return fail(qp, w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0x8a);
	default:
		return fail(qp, w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0x89);
	}
}

static bool route_ok(const struct emu_qp *qp, const struct emu_qp *peer)
{
	const struct ib_uverbs_qp_dest *d = &qp->attr.dest;

	if (d->is_global)
		return dev_of_gid(d->dgid) == (int)peer->h.dev;
	return d->dlid == dev_lid(peer->h.dev);
}

/* The connected peer, or NULL if nothing would answer. */
static struct emu_qp *find_peer(const struct emu_qp *qp)
{
	struct emu_qp *peer = qp_find(qp->attr.dest_qp_num);

	if (!peer || !route_ok(qp, peer))
		return NULL;
	if (shm_alive_lately(peer->h.proc))
		return peer;
	shm_reclaim();
	return NULL;
}

static bool is_send(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM ||
	       opcode == MLX5_OPCODE_SEND_INVAL;
}

static enum rx_verdict deliver(struct emu_qp *peer, const struct rx_msg *m)
{
	if (m->w->opcode == MLX5_OPCODE_RDMA_READ)
		return rq_read(peer, m);
	return is_send(m->w->opcode) ? rq_send(peer, m) : rq_write(peer, m);
}

/* One piece of a SEND, WRITE or READ on a connected QP. */
static enum step exec_piece(struct emu_qp *qp, const struct emu_wqe *w, struct emu_qp *peer,
			    uint64_t len)
{
	bool reads = w->opcode == MLX5_OPCODE_RDMA_READ;
	struct gathered g;
	struct rx_msg m = {
		.from = qp,
		.w = w,
		.off = qp->tx.done,
		.len = len,
		.first = !qp->tx.done,
		.last = qp->tx.done + len == w->len,
	};
	enum rx_verdict v;
	enum step s;

	if (!gather(qp, w, m.off, len, reads ? IBV_ACCESS_LOCAL_WRITE : 0, &g))
		return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	m.iov = g.iov;
	m.niov = g.n;
	v = deliver(peer, &m);
	release(&g);
	if (qp->type == IBV_QPT_UC)
		v = RX_OK;
	s = verdict(qp, w, peer, v);
	if (s != STEP_DONE)
		return s;
	qp->tx.done += len;
	if (!m.last)
		return STEP_MORE;
	complete(qp, w, 0, 0);
	return STEP_DONE;
}

static enum step exec_transfer(struct emu_qp *qp, const struct emu_wqe *w)
{
	struct emu_qp *peer = find_peer(qp);
	uint64_t len = w->len - qp->tx.done;

	if (!peer && qp->type == IBV_QPT_UC) {
		complete(qp, w, 0, 0); /* nobody there: lost */
		return STEP_DONE;
	}
	if (!peer)
		return no_answer(qp, w);
	if (model_on())
		len = qp->tx.piece;
	else if (len > PIECE)
		len = PIECE;
	return exec_piece(qp, w, peer, len);
}

static enum step exec_atomic(struct emu_qp *qp, const struct emu_wqe *w)
{
	struct emu_qp *peer = find_peer(qp);
	struct rx_msg m = {.from = qp, .w = w, .first = true, .last = true};
	struct gathered g;
	uint64_t old = 0;
	enum rx_verdict v;
	enum step s;

	if (!peer)
		return no_answer(qp, w);
	if (w->len < 8 || !gather(qp, w, 0, 8, IBV_ACCESS_LOCAL_WRITE, &g))
		return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	v = rq_atomic(peer, &m, &old);
	if (v == RX_OK) {
		struct iovec from = {&old, 8};

		mem_push(self.proc, g.iov, g.n, &from, 1);
	}
	release(&g);
	s = verdict(qp, w, peer, v);
	if (s == STEP_DONE)
		complete(qp, w, 0, 0);
	return s;
}

static bool to_device(const struct emu_wqe *w, uint32_t dev)
{
	if (self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET || (w->grh_gid_fl >> 30 & 1))
		return dev_of_gid(w->rgid) == (int)dev;
	return w->rlid == dev_lid(dev);
}

static void send_datagram(struct emu_qp *peer, const struct rx_msg *m)
{
	if (peer && shm_alive_lately(peer->h.proc))
		rq_send(peer, m);
}

static void send_multicast(const struct rx_msg *m)
{
	struct emu_mcast *mc = self.seg->mcast;
	int i;

	for (i = 0; i < EMU_MCASTS; i++)
		if (atomic_load(&mc[i].used) && !memcmp(mc[i].gid, m->w->rgid, 16) &&
		    &self.seg->qp[mc[i].qp] != m->from)
			send_datagram(&self.seg->qp[mc[i].qp], m);
}

static enum step exec_datagram(struct emu_qp *qp, struct emu_wqe *w)
{
	struct emu_qp *peer = qp_find(w->dqpn);
	struct gathered g;
	struct rx_msg m = {.from = qp, .w = w, .len = w->len, .first = true, .last = true};

	if (w->len > (128u << self.seg->cfg.mtu))
		return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x4f);
	if (!is_send(w->opcode))
		return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0x52);
	if (!gather(qp, w, 0, w->len, 0, &g))
		return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	m.iov = g.iov;
	m.niov = g.n;
	if (w->qkey & 0x80000000u) /* the high bit asks for the QP's own key */
		w->qkey = qp->attr.qkey;
	if (w->dqpn == 0xffffff)
		send_multicast(&m);
	else if (peer && to_device(w, peer->h.dev))
		send_datagram(peer, &m);
	release(&g);
	complete(qp, w, 0, 0);
	return STEP_DONE;
}

static enum step exec_umr(struct emu_qp *qp, const struct emu_wqe *w)
{
	int syndrome = mw_bind(qp, w->raw, w->ds);

	if (syndrome)
		return fail(qp, w, syndrome, 0x53);
	complete(qp, w, 0, 0);
	return STEP_DONE;
}

static enum step exec(struct emu_qp *qp, struct emu_wqe *w)
{
	switch (w->opcode) {
	case MLX5_OPCODE_NOP:
		complete(qp, w, 0, 0);
		return STEP_DONE;
	case MLX5_OPCODE_UMR:
		return exec_umr(qp, w);
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return qp->type == IBV_QPT_UD ? exec_datagram(qp, w) : exec_transfer(qp, w);
	case MLX5_OPCODE_RDMA_READ:
		if (qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD)
			break;
		return exec_transfer(qp, w);
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		if (qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD)
			break;
		return exec_atomic(qp, w);
	}
	return fail(qp, w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0x52);
}

static void see_posts(struct emu_qp *qp)
{
	if (!qp->sq_cnt)
		return;
	if (self.seg->cfg.mode == EMU_TRAP)
		qp->tx.pi = qp->tx.db_pi;
	else
		qp->tx.pi = be32toh(*(volatile uint32_t *)(uintptr_t)(qp->dbrec + 4));
	atomic_thread_fence(memory_order_acquire); /* the WQEs were written before the record */
}

/* With models: pieces run when their packets arrive, completions when their ACKs do. */
static bool run_model(struct emu_qp *qp)
{
	struct emu_wqe w;
	uint64_t now = now_ns();
	bool moved = false;
	int syndrome;
	enum step s;

	model_publish(qp);
	while (!model_acks_full(qp) && model_arrived(qp, now)) {
		moved = true;
		syndrome = wqe_fetch(qp, qp->tx.ci, &w);
		s = syndrome ? fail(qp, &w, syndrome, 0x52) : exec(qp, &w);
		if (s == STEP_WAIT) /* the rest of what is on its way is lost, too */
			model_restart(qp, qp->tx.rnr_next);
		if (s == STEP_WAIT || s == STEP_FAILED)
			break;
		model_publish(qp);
	}
	model_acks(qp, now);
	if (model_waiting(qp, &now) && now < self.next_due)
		self.next_due = now;
	return moved;
}

/* True if something moved. */
bool sq_run(struct emu_qp *qp)
{
	struct emu_wqe w;
	bool moved = false;
	int budget, syndrome;
	enum step s;

	see_posts(qp);
	if (model_on())
		return run_model(qp);
	if (qp->tx.rnr_next && self.seg->cfg.rnr_timing && now_ns() < qp->tx.rnr_next)
		return false;
	for (budget = BURST; budget && qp->tx.ci != qp->tx.pi; budget--) {
		syndrome = wqe_fetch(qp, qp->tx.ci, &w);
		s = syndrome ? fail(qp, &w, syndrome, 0x52) : exec(qp, &w);
		if (s == STEP_WAIT) {
			self.unfinished = true;
			return moved;
		}
		moved = true;
		if (s == STEP_FAILED)
			return true;
	}
	return moved;
}

/* Every WQE that is left, signaled or not, completes with a flush error. */
void sq_flush(struct emu_qp *qp)
{
	struct emu_wqe w;

	see_posts(qp);
	if (model_on()) {
		model_acks(qp, UINT64_MAX);
		model_forget(qp);
	}
	while (qp->tx.ci != qp->tx.pi) {
		wqe_fetch(qp, qp->tx.ci, &w);
		complete(qp, &w, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9);
	}
}
