/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UD QPs: a destroy that the device refuses, as the QP is in a multicast group, must change nothing
 * for the thread that posts to it; and address handles are destroyed while QPs with queued sends
 * are.
 */
#include "churn.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SENDS 600
#define LEN 1000

static struct {
	struct vu_cq cq;
	struct vu_qp q, to;
	struct ibv_ah *ah;
	struct vu_rng r;
	bool done; /* atomically */
} ud;

static const union ibv_gid group = {
	.raw = {[10] = 0xff, [11] = 0xff, [12] = 224, [13] = 1, [14] = 2, [15] = 3}};

static void make(struct vu_qp *q, int side, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = ch.rcq[side].cq,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_UD};
	struct vu_link link = vu_link_default(&ch.dev[side]);

	vu_qp_create(q, &ch.dev[side], &init, ch.api);
	vu_qp_to_init(&ch.dev[side], q->qp);
	vu_qp_to_rtr(&ch.dev[side], q->qp, NULL, &link);
	vu_qp_to_rts(q->qp, 1, &link);
}

/* The receiver has nothing posted: UD drops. */
static int post(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)ch.mem[0].p, LEN, ch.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_SEND, &sge, id, IBV_SEND_SIGNALED), *bad;

	wr.wr.ud.ah = ud.ah;
	wr.wr.ud.remote_qpn = ud.to.qp->qp_num;
	wr.wr.ud.remote_qkey = VU_QKEY;
	return vu_qp_post(&ud.q, &wr, &bad, ch.api == VU_POST_WR || vu_chance(&ud.r, 50));
}

/* ---- destroys that fail ---- */

static void *destroy_in_vain(void *arg)
{
	int err;

	while (!__atomic_load_n(&ud.done, __ATOMIC_ACQUIRE)) {
		err = ibv_destroy_qp(ud.q.qp);
		vu_check(err == EBUSY, "a QP in a multicast group: destroying it says %d", err);
		sched_yield();
	}
	return arg;
}

static void send_all(void)
{
	struct ibv_wc wc[8];
	uint64_t i = 0, seen = 0;
	int err, n;

	while (seen < SENDS) {
		err = i < SENDS ? post(i) : ENOMEM;
		vu_check(!err || err == ENOMEM, "posting: %s", strerror(err));
		i += !err;
		n = vu_cq_poll(&ud.cq, 8, wc, vu_poll_ex(ch.poll, &ud.r));
		for (int k = 0; k < n; k++, seen++)
			vu_check(wc[k].status == IBV_WC_SUCCESS && wc[k].wr_id == seen,
				 "send %u: %s, wr_id %u", (unsigned int)seen,
				 ibv_wc_status_str(wc[k].status), (unsigned int)wc[k].wr_id);
		if (err && !n)
			sched_yield();
	}
}

static void busy_qp(void)
{
	pthread_t other;
	int err;

	vu_at("destroying a QP that is busy");
	err = ibv_attach_mcast(ud.q.qp, &group, 0);
	vu_check(!err, "ibv_attach_mcast: %s", strerror(err));
	start_thread(&other, destroy_in_vain, NULL);
	send_all();
	__atomic_store_n(&ud.done, true, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	send_all(); /* also when nobody tries any more */
	err = ibv_detach_mcast(ud.q.qp, &group, 0);
	vu_check(!err, "ibv_detach_mcast: %s", strerror(err));
	vu_qp_destroy(&ud.q);
	vu_log("a busy QP: %d sends\n", 2 * SENDS);
}

/* ---- address handles ---- */

static void *churn_handles(void *arg)
{
	struct vu_addr to = vu_addr_of(&ch.dev[1], ud.to.qp);

	while (!__atomic_load_n(&ud.done, __ATOMIC_ACQUIRE))
		vu_check(!ibv_destroy_ah(vu_ah(&ch.dev[0], &to)), "ibv_destroy_ah");
	return arg;
}

static void handles_and_qps(void)
{
	pthread_t other;

	vu_at("destroying address handles beside QPs");
	ud.done = false;
	start_thread(&other, churn_handles, NULL);
	for (uint64_t i = 0; i < ch.lives; i++) {
		make(&ud.q, 0, ud.cq.cq);
		for (uint64_t k = 0; k < DEPTH; k++)
			post(k);
		vu_qp_destroy(&ud.q);
	}
	__atomic_store_n(&ud.done, true, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	vu_log("UD QPs: %d\n", (int)ch.lives);
}

void churn_ud(void)
{
	struct vu_addr to;

	vu_cq_create(&ud.cq, &ch.dev[0], 2 * DEPTH, NULL, ch.poll, NULL);
	ud.r.state = vu.seed;
	make(&ud.to, 1, ch.rcq[1].cq);
	make(&ud.q, 0, ud.cq.cq);
	to = vu_addr_of(&ch.dev[1], ud.to.qp);
	ud.ah = vu_ah(&ch.dev[0], &to);
	busy_qp();
	handles_and_qps();
	vu_check(!ibv_destroy_ah(ud.ah), "ibv_destroy_ah");
	vu_qp_destroy(&ud.to);
	vu_cq_destroy(&ud.cq);
}
