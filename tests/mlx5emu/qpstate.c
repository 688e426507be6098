/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_modify_qp(): which transitions exist, which attributes each needs and allows.
 *
 * The table follows the InfiniBand Architecture Specification, volume 1, chapter 10.3 (QP states)
 * and chapter 11.2.4.2 (modify queue pair), and ibv_modify_qp(3).
 */
#include "emu.h"

#define RC_BIT (1u << IBV_QPT_RC)
#define UC_BIT (1u << IBV_QPT_UC)
#define UD_BIT (1u << IBV_QPT_UD)
#define XI_BIT (1u << IBV_QPT_XRC_SEND)
#define XT_BIT (1u << IBV_QPT_XRC_RECV)
#define CONNECTED (RC_BIT | UC_BIT | XI_BIT | XT_BIT)

#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RETRY (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define MIGRATE (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RESPONDER (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

struct transition {
	uint8_t from, to;
	uint32_t types; /* 1 << qp type */
	uint32_t need, may;
};

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, CONNECTED,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_RESET, IBV_QPS_INIT, UD_BIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, CONNECTED, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_INIT, UD_BIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
	{IBV_QPS_INIT, IBV_QPS_RTR, RC_BIT | XT_BIT, PATH | RESPONDER,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_INIT, IBV_QPS_RTR, UC_BIT | XI_BIT, PATH,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_INIT, IBV_QPS_RTR, UD_BIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPS_RTR, IBV_QPS_RTS, RC_BIT | XI_BIT, RETRY | IBV_QP_SQ_PSN,
	 IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTR, IBV_QPS_RTS, XT_BIT, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
	 IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTR, IBV_QPS_RTS, UC_BIT, IBV_QP_SQ_PSN,
	 IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_RTR, IBV_QPS_RTS, UD_BIT, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPS_RTS, IBV_QPS_RTS, RC_BIT | XI_BIT | XT_BIT, 0,
	 IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_RTS, UC_BIT, 0, IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_RTS, IBV_QPS_RTS, UD_BIT, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPS_RTS, IBV_QPS_SQD, CONNECTED | UD_BIT, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_SQD, CONNECTED, 0,
	 IBV_QP_PORT | IBV_QP_AV | RETRY | RESPONDER | MIGRATE | IBV_QP_PKEY_INDEX |
		 IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_SQD, IBV_QPS_SQD, UD_BIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPS_SQD, IBV_QPS_RTS, CONNECTED, 0,
	 IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_SQD, IBV_QPS_RTS, UD_BIT, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPS_SQE, IBV_QPS_RTS, UC_BIT, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_SQE, IBV_QPS_RTS, UD_BIT, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

static bool transition_ok(uint32_t type, uint32_t from, uint32_t to, uint32_t mask)
{
	const struct transition *t;
	size_t i;

	mask &= ~(uint32_t)IBV_QP_STATE;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return !mask;
	for (i = 0; i < sizeof(transitions) / sizeof(*transitions); i++) {
		t = &transitions[i];
		if (t->from == from && t->to == to && (t->types & (1u << type)))
			return !(t->need & ~mask) && !(mask & ~(t->need | t->may));
	}
	return false;
}

static bool address_ok(const struct ib_uverbs_qp_dest *d)
{
	/* RoCE has no addresses without a GRH. */
	if (self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET && !d->is_global)
		return false;
	return !d->is_global || d->sgid_index < EMU_GIDS;
}

static bool values_ok(const struct ib_uverbs_modify_qp *c)
{
	uint32_t m = c->attr_mask;

	if ((m & IBV_QP_PORT) && c->port_num != 1)
		return false;
	if ((m & IBV_QP_PKEY_INDEX) && c->pkey_index != 0)
		return false;
	if ((m & IBV_QP_PATH_MTU) && (c->path_mtu < IBV_MTU_256 || c->path_mtu > IBV_MTU_4096))
		return false;
	if ((m & IBV_QP_MAX_QP_RD_ATOMIC) && c->max_rd_atomic > 16)
		return false;
	if ((m & IBV_QP_MAX_DEST_RD_ATOMIC) && c->max_dest_rd_atomic > 16)
		return false;
	if ((m & IBV_QP_RNR_RETRY) && c->rnr_retry > 7)
		return false;
	if ((m & IBV_QP_RETRY_CNT) && c->retry_cnt > 7)
		return false;
	if ((m & (IBV_QP_TIMEOUT | IBV_QP_MIN_RNR_TIMER)) &&
	    (c->timeout > 31 || c->min_rnr_timer > 31))
		return false;
	return !(m & IBV_QP_AV) || address_ok(&c->dest);
}

#define TAKE(bit, field)                     \
	do {                                 \
		if (c->attr_mask & (bit))    \
			a->field = c->field; \
	} while (0)

static void take_attrs(struct ib_uverbs_modify_qp *a, const struct ib_uverbs_modify_qp *c)
{
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, dest);
	TAKE(IBV_QP_ALT_PATH, alt_dest);
	TAKE(IBV_QP_ALT_PATH, alt_pkey_index);
	TAKE(IBV_QP_ALT_PATH, alt_port_num);
	TAKE(IBV_QP_ALT_PATH, alt_timeout);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
}

/* The caller holds self.lock; the receive side may be in use by a peer. */
static void enter(struct emu_qp *qp, uint32_t to)
{
	if (model_on() && to != IBV_QPS_RTS)
		model_forget(qp);
	shm_lock(&qp->rq_lock);
	atomic_store(&qp->state, to);
	if (to == IBV_QPS_RESET) {
		memset(&qp->rx, 0, sizeof(qp->rx));
		memset(&qp->tx, 0, sizeof(qp->tx));
		memset(&qp->attr, 0, sizeof(qp->attr));
		qp->last_wqe_sent = 0;
		qp->sq_drained = 0;
		memset(&qp->sched, 0, sizeof(qp->sched));
	}
	if (to == IBV_QPS_RTS) {
		qp->sq_drained = 0;
		qp->tx.retry_since = 0;
	}
	shm_unlock(&qp->rq_lock);
}

int qp_modify(struct emu_req *r)
{
	struct ib_uverbs_ex_modify_qp ex;
	struct ib_uverbs_modify_qp *c = &ex.base;
	struct mlx5_ib_modify_qp_resp drv = {.response_length = sizeof(drv)};
	struct ib_uverbs_ex_modify_qp_resp resp = {.response_length = sizeof(resp)};
	struct emu_handle *h;
	struct emu_qp *qp;
	uint32_t from, to;

	if (req_in(r, UVERBS_ATTR_CORE_IN, &ex, sizeof(ex)))
		return EINVAL;
	h = handle_get(r->ctx, UVERBS_OBJECT_QP, c->qp_handle);
	if (!h)
		return EINVAL;
	qp = &self.seg->qp[h->slot];
	nic_lock();
	if (qp->h.proc == (uint32_t)self.proc)
		nic_catch_up(qp);
	from = atomic_load(&qp->state);
	to = c->attr_mask & IBV_QP_STATE ? c->qp_state : from;
	if (((c->attr_mask & IBV_QP_CUR_STATE) && c->cur_qp_state != from) || !values_ok(c) ||
	    !transition_ok(qp->type, from, to, c->attr_mask)) {
		nic_unlock();
		return EINVAL;
	}
	take_attrs(&qp->attr, c);
	if (to != from || to == IBV_QPS_RESET)
		enter(qp, to);
	nic_unlock();
	shm_wake(self.proc);
	req_out(r, UVERBS_ATTR_UHW_OUT, &drv, sizeof(drv));
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}
