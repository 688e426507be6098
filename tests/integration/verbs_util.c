/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- devices and memory ---- */

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int n;

	list = ibv_get_device_list(&n);
	if (!list)
		vu_die("ibv_get_device_list: %s", strerror(errno));
	for (int i = 0; i < n && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		vu_die("no usable RDMA device \"%s\" among %d", name, n);
	ibv_free_device_list(list);
	return ctx;
}

void vu_dev_open(struct vu_dev *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	d->ctx = open_by_name(name);
	d->is_rxe = !strncmp(name, "rxe", 3);
	d->gid_index = (uint8_t)vu.gid;
	if (ibv_query_device(d->ctx, &d->attr) || ibv_query_port(d->ctx, 1, &d->port) ||
	    ibv_query_gid(d->ctx, 1, d->gid_index, &d->gid))
		vu_die("%s: query failed", name);
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		vu_die("%s: ibv_alloc_pd: %s", name, strerror(errno));
}

void vu_dev_open_pair(struct vu_dev d[2])
{
	vu_dev_open(&d[0], vu.dev);
	vu_dev_open(&d[1], vu.peer_dev);
}

void vu_dev_close(struct vu_dev *d)
{
	int err = ibv_dealloc_pd(d->pd);

	vu_check(!err, "ibv_dealloc_pd: %s", strerror(err));
	vu_check(!ibv_close_device(d->ctx), "ibv_close_device: %s", strerror(errno));
	memset(d, 0, sizeof(*d));
}

uint32_t vu_mtu(const struct vu_dev *d)
{
	return 128u << d->port.active_mtu;
}

struct ibv_mr *vu_reg(struct vu_dev *d, void *p, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, p, len, access);

	vu_check(mr, "ibv_reg_mr of %zu bytes: %s", len, strerror(errno));
	return mr;
}

void vu_mem_alloc(struct vu_mem *m, struct vu_dev *d, size_t len, int access)
{
	void *p;

	if (posix_memalign(&p, 4096, len))
		vu_die("out of memory (%zu bytes)", len);
	memset(p, 0, len);
	m->p = p;
	m->len = len;
	m->mr = vu_reg(d, p, len, access);
}

void vu_mem_free(struct vu_mem *m)
{
	int err = ibv_dereg_mr(m->mr);

	vu_check(!err, "ibv_dereg_mr: %s", strerror(err));
	free(m->p);
	memset(m, 0, sizeof(*m));
}

/* ---- completion queues ---- */

enum vu_poll vu_poll_of(const char *name)
{
	if (!strcmp(name, "cq"))
		return VU_POLL_CQ;
	if (!strcmp(name, "ex"))
		return VU_POLL_EX;
	vu_check(!strcmp(name, "mixed"), "--poll is cq, ex or mixed, not \"%s\"", name);
	return VU_POLL_MIXED;
}

bool vu_poll_ex(enum vu_poll poll, struct vu_rng *r)
{
	return poll == VU_POLL_EX || (poll == VU_POLL_MIXED && vu_chance(r, 50));
}

enum vu_post vu_post_of(const char *name)
{
	if (!strcmp(name, "send"))
		return VU_POST_SEND;
	if (!strcmp(name, "wr"))
		return VU_POST_WR;
	vu_check(!strcmp(name, "mixed"), "--api is send, wr or mixed, not \"%s\"", name);
	return VU_POST_MIXED;
}

void vu_cq_create(struct vu_cq *c, struct vu_dev *d, int cqe, struct ibv_comp_channel *channel,
		  enum vu_poll poll, void *cq_context)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = (uint32_t)cqe,
					   .cq_context = cq_context,
					   .channel = channel,
					   .wc_flags = IBV_WC_STANDARD_FLAGS};

	memset(c, 0, sizeof(*c));
	c->channel = channel;
	c->batches = !d->is_rxe;
	if (poll == VU_POLL_CQ) {
		c->cq = ibv_create_cq(d->ctx, cqe, cq_context, channel, 0);
	} else {
		c->ex = ibv_create_cq_ex(d->ctx, &attr);
		c->cq = c->ex ? ibv_cq_ex_to_cq(c->ex) : NULL;
	}
	vu_check(c->cq, "creating a CQ of %d entries: %s", cqe, strerror(errno));
	vu_check(c->cq->cqe >= cqe, "asked for %d CQ entries, got %d", cqe, c->cq->cqe);
	vu_check(c->cq->channel == channel, "cq->channel is not the channel given");
	vu_check(c->cq->cq_context == cq_context, "cq->cq_context is not the context given");
}

void vu_cq_destroy(struct vu_cq *c)
{
	int err;

	if (c->unacked)
		ibv_ack_cq_events(c->cq, c->unacked);
	err = ibv_destroy_cq(c->cq);
	vu_check(!err, "ibv_destroy_cq: %s", strerror(err));
	memset(c, 0, sizeof(*c));
}

static void read_ex(struct ibv_cq_ex *ex, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = ex->wr_id;
	wc->status = ex->status;
	wc->qp_num = ibv_wc_read_qp_num(ex);
	wc->vendor_err = ibv_wc_read_vendor_err(ex);
	if (wc->status != IBV_WC_SUCCESS)
		return; /* nothing else is defined */
	wc->opcode = ibv_wc_read_opcode(ex);
	wc->wc_flags = ibv_wc_read_wc_flags(ex);
	wc->byte_len = ibv_wc_read_byte_len(ex);
	wc->imm_data = ibv_wc_read_imm_data(ex);
	wc->src_qp = ibv_wc_read_src_qp(ex);
	wc->slid = (uint16_t)ibv_wc_read_slid(ex);
	wc->sl = ibv_wc_read_sl(ex);
	wc->dlid_path_bits = ibv_wc_read_dlid_path_bits(ex);
}

int vu_cq_poll(struct vu_cq *c, int n, struct ibv_wc *wc, bool ex)
{
	struct ibv_poll_cq_attr attr = {0};
	int err, got = 0;

	if (!ex || !c->ex)
		return ibv_poll_cq(c->cq, n, wc);
	err = ibv_start_poll(c->ex, &attr);
	if (err == ENOENT)
		return 0;
	if (err)
		return -err;
	do
		read_ex(c->ex, &wc[got++]);
	while (got < n && c->batches && !ibv_next_poll(c->ex));
	ibv_end_poll(c->ex);
	return got;
}

int vu_cq_collect(struct vu_cq *c, int n, struct ibv_wc *wc, double seconds)
{
	double end = vu_now() + seconds;
	int got = 0, k;

	while (got < n) {
		k = ibv_poll_cq(c->cq, n - got, wc + got);
		vu_check(k >= 0, "ibv_poll_cq: %d", k);
		got += k;
		if (k)
			continue;
		if (vu_now() > end)
			break;
		vu_sleep(50e-6);
	}
	return got;
}

void vu_cq_expect_ok(struct vu_cq *c, uint64_t wr_id, const char *what)
{
	struct ibv_wc wc;

	vu_check(vu_cq_collect(c, 1, &wc, 30) == 1, "%s: no completion", what);
	vu_check(wc.status == IBV_WC_SUCCESS, "%s: %s", what, ibv_wc_status_str(wc.status));
	vu_check(wc.wr_id == wr_id, "%s: wr_id %#" PRIx64 " instead of %#" PRIx64, what, wc.wr_id,
		 wr_id);
}

static const struct {
	const char *name;
	enum ibv_wc_opcode wc;
} opcodes[] = {
	[IBV_WR_RDMA_WRITE] = {"WRITE", IBV_WC_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {"WRITE_IMM", IBV_WC_RDMA_WRITE},
	[IBV_WR_SEND] = {"SEND", IBV_WC_SEND},
	[IBV_WR_SEND_WITH_IMM] = {"SEND_IMM", IBV_WC_SEND},
	[IBV_WR_RDMA_READ] = {"READ", IBV_WC_RDMA_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {"CMP_SWP", IBV_WC_COMP_SWAP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {"FETCH_ADD", IBV_WC_FETCH_ADD},
	[IBV_WR_LOCAL_INV] = {"LOCAL_INV", IBV_WC_LOCAL_INV},
	[IBV_WR_BIND_MW] = {"BIND_MW", IBV_WC_BIND_MW},
	[IBV_WR_SEND_WITH_INV] = {"SEND_INV", IBV_WC_SEND},
};

const char *vu_opcode_name(enum ibv_wr_opcode op)
{
	return op < VU_ARRAY(opcodes) ? opcodes[op].name : "?";
}

enum ibv_wc_opcode vu_wc_opcode(enum ibv_wr_opcode op)
{
	return opcodes[op].wc;
}

/* ---- queue pairs ---- */

static uint64_t send_ops(enum ibv_qp_type type)
{
	uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;

	if (type == IBV_QPT_UD)
		return send;
	if (type == IBV_QPT_UC)
		return send | write;
	return send | write | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
	       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
}

static struct ibv_qp *create_ex(struct vu_dev *d, struct ibv_qp_init_attr *init,
				struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr_ex ex = {.qp_context = init->qp_context,
					 .send_cq = init->send_cq,
					 .recv_cq = init->recv_cq,
					 .srq = init->srq,
					 .cap = init->cap,
					 .qp_type = init->qp_type,
					 .sq_sig_all = init->sq_sig_all,
					 .comp_mask = IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .pd = d->pd,
					 .send_ops_flags = send_ops(init->qp_type)};
	struct ibv_qp *qp = ibv_create_qp_ex(d->ctx, &ex);

	*cap = ex.cap;
	return qp;
}

void vu_qp_create(struct vu_qp *q, struct vu_dev *d, struct ibv_qp_init_attr *init,
		  enum vu_post post)
{
	memset(q, 0, sizeof(*q));
	if (post == VU_POST_SEND) {
		q->qp = ibv_create_qp(d->pd, init);
		q->cap = init->cap;
	} else {
		q->qp = create_ex(d, init, &q->cap);
	}
	vu_check(q->qp, "creating a QP: %s", strerror(errno));
	if (post != VU_POST_SEND) {
		q->ex = ibv_qp_to_qp_ex(q->qp);
		vu_check(q->ex, "ibv_qp_to_qp_ex: %s", strerror(errno));
	}
}

void vu_qp_destroy(struct vu_qp *q)
{
	int err = ibv_destroy_qp(q->qp);

	vu_check(!err, "ibv_destroy_qp: %s", strerror(err));
	memset(q, 0, sizeof(*q));
}

struct vu_link vu_link_default(const struct vu_dev *d)
{
	int rd = d->attr.max_qp_rd_atom < 16 ? d->attr.max_qp_rd_atom : 16;

	return (struct vu_link){.timeout = 20, /* 4 s; rxe 6.1 retransmits badly */
				.retry_cnt = 7,
				.rnr_retry = 7,
				.min_rnr_timer = 12,
				.rd_atomic = (uint8_t)rd,
				.mtu = d->port.active_mtu};
}

struct vu_addr vu_addr_of(const struct vu_dev *d, const struct ibv_qp *qp)
{
	/* a new one each time: packets of an earlier life must not fit */
	static uint32_t last;
	uint32_t psn = __atomic_add_fetch(&last, 0x13579b, __ATOMIC_RELAXED);

	return (struct vu_addr){.gid = d->gid,
				.qpn = qp->qp_num,
				.psn = (psn ^ qp->qp_num) & 0xffffff,
				.lid = d->port.lid};
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *to)
{
	int err = ibv_modify_qp(qp, attr, mask);

	vu_check(!err, "ibv_modify_qp to %s: %s", to, strerror(err));
}

void vu_qp_to_init(struct vu_dev *d, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	(void)d;
	if (qp->qp_type == IBV_QPT_UD) {
		attr.qkey = VU_QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = VU_ACCESS;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	modify(qp, &attr, mask, "INIT");
}

static struct ibv_ah_attr ah_attr(const struct vu_dev *d, const struct vu_addr *peer, uint8_t tc)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .dlid = peer->lid,
				    .port_num = 1,
				    .grh = {.dgid = peer->gid,
					    .sgid_index = d->gid_index,
					    .hop_limit = 64,
					    .traffic_class = tc}};
}

void vu_qp_to_rtr(struct vu_dev *d, struct ibv_qp *qp, const struct vu_addr *peer,
		  const struct vu_link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD) {
		attr.path_mtu = l->mtu;
		attr.dest_qp_num = peer->qpn;
		attr.rq_psn = peer->psn;
		attr.ah_attr = ah_attr(d, peer, l->traffic_class);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = l->rd_atomic;
		attr.min_rnr_timer = l->min_rnr_timer;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	modify(qp, &attr, mask, "RTR");
}

void vu_qp_to_rts(struct ibv_qp *qp, uint32_t psn, const struct vu_link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC) {
		attr.timeout = l->timeout;
		attr.retry_cnt = l->retry_cnt;
		attr.rnr_retry = l->rnr_retry;
		attr.max_rd_atomic = l->rd_atomic;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	modify(qp, &attr, mask, "RTS");
}

int vu_qp_to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state vu_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);

	vu_check(!err, "ibv_query_qp: %s", strerror(err));
	return attr.qp_state;
}

void vu_connect(struct vu_dev *a, struct ibv_qp *qa, struct vu_dev *b, struct ibv_qp *qb,
		const struct vu_link *l)
{
	struct vu_addr aa = vu_addr_of(a, qa), ab = vu_addr_of(b, qb);

	vu_qp_to_init(a, qa);
	vu_qp_to_init(b, qb);
	vu_qp_to_rtr(a, qa, &ab, l);
	vu_qp_to_rtr(b, qb, &aa, l);
	vu_qp_to_rts(qa, aa.psn, l);
	vu_qp_to_rts(qb, ab.psn, l);
}

struct ibv_ah *vu_ah(struct vu_dev *d, const struct vu_addr *peer)
{
	struct ibv_ah_attr attr = ah_attr(d, peer, 0);
	struct ibv_ah *ah = ibv_create_ah(d->pd, &attr);

	vu_check(ah, "ibv_create_ah: %s", strerror(errno));
	return ah;
}
