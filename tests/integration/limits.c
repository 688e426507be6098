/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limits: what the control calls answer. Capabilities granted and queried, errors of bad arguments,
 * of posts that cannot be, of objects still in use, and that nothing leaks over many life cycles.
 *
 * Almost everything is logged, to be compared with a native run, and little is judged here: devices
 * differ.
 */
#include "verbs_util.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vu_dev dev[2];
static uint64_t cycles = 100;

/* ---- the device ---- */

static void log_device(void)
{
	const struct ibv_device_attr *a = &dev[0].attr;
	const struct ibv_port_attr *p = &dev[0].port;

	vu_log("device: qp %d wr %d sge %d cq %d cqe %d mr %d pd %d rd_atom %d/%d srq %d/%d/%d "
	       "mw %d ah %d atomic %d caps %#x\n",
	       a->max_qp, a->max_qp_wr, a->max_sge, a->max_cq, a->max_cqe, a->max_mr, a->max_pd,
	       a->max_qp_rd_atom, a->max_qp_init_rd_atom, a->max_srq, a->max_srq_wr, a->max_srq_sge,
	       a->max_mw, a->max_ah, (int)a->atomic_cap, a->device_cap_flags);
	vu_log("port: state %d mtu %d/%d msg %u gids %d width %d speed %d\n", (int)p->state,
	       (int)p->max_mtu, (int)p->active_mtu, p->max_msg_sz, p->gid_tbl_len, p->active_width,
	       p->active_speed);
}

static void log_device_ex(void)
{
	struct ibv_device_attr_ex ex;
	int err = ibv_query_device_ex(dev[0].ctx, NULL, &ex);

	vu_log("device ex: %d", err);
	if (!err)
		vu_log(" wq %u rss %u raw %u", ex.max_wq_type_rq, ex.rss_caps.supported_qpts,
		       ex.raw_packet_caps);
	vu_log("\n");
}

/* ---- capabilities of QPs ---- */

static struct ibv_cq *some_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(dev[0].ctx, cqe, NULL, NULL, 0);

	vu_check(cq, "ibv_create_cq: %s", strerror(errno));
	return cq;
}

static void log_cap(const char *what, const struct ibv_qp_cap *c)
{
	vu_log(" %s wr %u/%u sge %u/%u inline %u", what, c->max_send_wr, c->max_recv_wr,
	       c->max_send_sge, c->max_recv_sge, c->max_inline_data);
}

/* What ibv_query_qp says of a QP, and whether it names the objects that the program knows. */
static void log_query(struct ibv_qp *qp, const struct ibv_qp_init_attr *asked)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err;

	memset(&attr, 0, sizeof(attr));
	memset(&init, 0, sizeof(init));
	err = ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init);
	vu_check(!err, "ibv_query_qp: %s", strerror(err));
	vu_check(init.send_cq == asked->send_cq && init.recv_cq == asked->recv_cq &&
			 init.srq == asked->srq && init.qp_context == asked->qp_context &&
			 init.qp_type == asked->qp_type,
		 "ibv_query_qp names other objects than the QP was made with");
	vu_check(!!init.sq_sig_all == !!asked->sq_sig_all, "ibv_query_qp: sq_sig_all %d, was %d",
		 init.sq_sig_all, asked->sq_sig_all);
	vu_check(qp->send_cq == asked->send_cq && qp->recv_cq == asked->recv_cq &&
			 qp->qp_context == asked->qp_context && qp->pd == dev[0].pd &&
			 qp->context == dev[0].ctx,
		 "the QP's public fields are wrong");
	/* rxe rounds max_send_wr up here, but not where it grants it: only a floor is promised. */
	vu_check(init.cap.max_send_wr >= asked->cap.max_send_wr &&
			 attr.cap.max_send_wr >= asked->cap.max_send_wr,
		 "ibv_query_qp: max_send_wr %u and %u, granted %u", init.cap.max_send_wr,
		 attr.cap.max_send_wr, asked->cap.max_send_wr);
	init.cap.max_send_wr = 0;
	attr.cap.max_send_wr = 0;
	log_cap("queried", &init.cap);
	log_cap("attr", &attr.cap);
	vu_log(" state %d/%d\n", (int)attr.qp_state, (int)qp->state);
}

static void one_qp(enum ibv_qp_type type, struct ibv_qp_cap cap, int sig_all, enum vu_post post)
{
	struct ibv_cq *scq = some_cq(10), *rcq = some_cq(10);
	struct ibv_qp_init_attr init = {.qp_context = &cap,
					.send_cq = scq,
					.recv_cq = rcq,
					.cap = cap,
					.qp_type = type,
					.sq_sig_all = sig_all};
	struct vu_qp q;

	vu_qp_create(&q, &dev[0], &init, post);
	vu_log("qp type %d sig_all %d api %d:", (int)type, sig_all, (int)post);
	log_cap("asked", &cap);
	/* How far a provider rounds it up is its own business. */
	vu_check(q.cap.max_send_wr >= cap.max_send_wr, "max_send_wr %u granted, %u asked",
		 q.cap.max_send_wr, cap.max_send_wr);
	q.cap.max_send_wr = 0;
	log_cap("granted", &q.cap);
	log_query(q.qp, &init);
	vu_check(ibv_destroy_cq(scq) && ibv_destroy_cq(rcq), "a CQ in use could be destroyed");
	vu_qp_destroy(&q);
	vu_check(!ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "ibv_destroy_cq");
}

static void log_caps(void)
{
	static const struct ibv_qp_cap caps[] = {
		{1, 1, 1, 1, 0},    {2, 3, 2, 1, 16},	  {3, 2, 1, 2, 1},
		{16, 16, 4, 4, 64}, {100, 50, 5, 7, 100}, {1000, 1000, 30, 30, 220},
		{4096, 1, 1, 1, 0},
	};
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

	vu_at("creating QPs");
	for (size_t i = 0; i < VU_ARRAY(caps); i++)
		for (size_t t = 0; t < VU_ARRAY(types); t++) {
			one_qp(types[t], caps[i], i % 2, VU_POST_SEND);
			one_qp(types[t], caps[i], !(i % 2), VU_POST_WR);
		}
}

static void log_refused_qp(const char *what, struct ibv_qp_cap cap)
{
	struct ibv_cq *cq = some_cq(10);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(dev[0].pd, &init);
	vu_log("qp with %s: %s %d\n", what, qp ? "made" : "refused", qp ? 0 : errno);
	if (qp)
		ibv_destroy_qp(qp);
	vu_check(!ibv_destroy_cq(cq), "ibv_destroy_cq after a refused QP");
}

static void log_refusals(void)
{
	const struct ibv_device_attr *a = &dev[0].attr;

	vu_at("asking for too much");
	log_refused_qp("too many WRs", (struct ibv_qp_cap){(uint32_t)a->max_qp_wr + 1, 1, 1, 1, 0});
	log_refused_qp("as many WRs as can be",
		       (struct ibv_qp_cap){(uint32_t)a->max_qp_wr, 1, 1, 1, 0});
	log_refused_qp("too many SGEs", (struct ibv_qp_cap){1, 1, (uint32_t)a->max_sge + 1, 1, 0});
	log_refused_qp("too much inline", (struct ibv_qp_cap){1, 1, 1, 1, 1u << 20});
}

/* ---- CQs ---- */

static void log_cqs(void)
{
	int sizes[] = {
		-1, 0, 1, 2, 3, 4, 7, 8, 100, 1000, dev[0].attr.max_cqe, dev[0].attr.max_cqe + 1};
	struct ibv_cq *cq;

	vu_at("creating CQs");
	for (size_t i = 0; i < VU_ARRAY(sizes); i++) {
		errno = 0;
		cq = ibv_create_cq(dev[0].ctx, sizes[i], NULL, NULL, 0);
		/* How many more than asked for is the provider's choice. */
		vu_log("cq of %d: %s\n", sizes[i], cq ? "made" : strerror(errno));
		vu_check(!cq || cq->cqe >= sizes[i], "a CQ of %d has %d entries", sizes[i],
			 cq ? cq->cqe : 0);
		if (cq)
			vu_check(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	}
}

/* ---- posts that must be refused ---- */

static struct vu_pair pair;
static const struct vu_pair_spec spec = {
	.mem = 65536, .send_wr = 8, .recv_wr = 8, .sge = 2, .inline_data = 32};

static int log_post(const char *what, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(pair.qp[0].qp, wr, &bad);

	vu_log("post %s: %d bad_wr %s\n", what, err, !bad ? "none" : bad == wr ? "first" : "other");
	return err;
}

static void log_bad_posts(void)
{
	struct ibv_sge sge[64];
	struct ibv_send_wr wr;

	vu_at("posting what cannot be");
	for (size_t i = 0; i < VU_ARRAY(sge); i++)
		sge[i] = (struct ibv_sge){(uintptr_t)pair.mem[0].p, 1, pair.mem[0].mr->lkey};
	wr = vu_wr(IBV_WR_RDMA_WRITE, sge, 1, IBV_SEND_SIGNALED);
	vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
	wr.num_sge = (int)pair.qp[0].cap.max_send_sge + 1;
	log_post("with one SGE too many", &wr);
	wr.num_sge = 60;
	log_post("with 60 SGEs", &wr);
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_INLINE;
	sge[0].length = pair.qp[0].cap.max_inline_data + 1;
	log_post("with one inline byte too many", &wr);
	sge[0].length = 1u << 20;
	log_post("with a MiB inline", &wr);
}

static void reconnect(void)
{
	for (int i = 0; i < 2; i++)
		vu_check(!vu_qp_to_state(pair.qp[i].qp, IBV_QPS_RESET), "to RESET");
	vu_connect(&pair.dev[0], pair.qp[0].qp, &pair.dev[1], pair.qp[1].qp, &pair.link);
}

/* Some providers refuse such an atomic, others leave it to the NIC: whichever it is, and how. */
static void log_atomic(const char *what, struct ibv_send_wr *wr)
{
	struct ibv_wc wc;

	if (log_post(what, wr))
		return;
	vu_check(vu_cq_collect(&pair.scq[0], 1, &wc, 5) == 1, "no completion of %s", what);
	vu_log("%s: status %d\n", what, (int)wc.status);
	reconnect();
}

static void log_bad_atomics(void)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, 8, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, IBV_SEND_SIGNALED);

	vu_at("atomics that cannot be");
	vu_wr_remote(&wr, pair.mem[1].p + 4, pair.mem[1].mr->rkey);
	log_atomic("an atomic on an odd address", &wr);
	vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
	sge.length = 4;
	log_atomic("an atomic of 4 bytes", &wr);
	wr.num_sge = 0;
	log_atomic("an atomic without an SGE", &wr);
}

/* After all that was refused the QP works, and nothing of it comes out of the CQ. */
static void still_works(void)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, 1000, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 4711, IBV_SEND_SIGNALED);
	struct ibv_wc wc;

	vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
	vu_must_post(pair.qp[0].qp, &wr);
	vu_cq_expect_ok(&pair.scq[0], 4711, "a WRITE after refused ones");
	vu_check(!vu_cq_collect(&pair.scq[0], 1, &wc, 0.02), "a completion of a refused post");
}

static void log_bad_recvs(void)
{
	struct ibv_sge sge[3] = {{(uintptr_t)pair.mem[0].p, 1, pair.mem[0].mr->lkey}};
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = 3}, *bad;
	int err, n = 0;

	bad = NULL;
	err = ibv_post_recv(pair.qp[0].qp, &wr, &bad);
	vu_log("receive with too many SGEs: %d bad_wr %s\n", err, bad == &wr ? "first" : "other");
	wr.num_sge = 1;
	while (!(err = ibv_post_recv(pair.qp[0].qp, &wr, &bad)) && n < 100)
		n++;
	vu_log("receives until full: %d then %d\n", n, err);
}

/* ---- states ---- */

static void log_post_in(const char *state, struct ibv_qp *qp)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, 8, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED), *bad;
	struct ibv_recv_wr rwr = {.sg_list = &sge, .num_sge = 1}, *rbad;

	vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
	vu_log("in %s: post_send %d", state, ibv_post_send(qp, &wr, &bad));
	vu_log(" post_recv %d state %d\n", ibv_post_recv(qp, &rwr, &rbad), (int)vu_qp_state(qp));
}

static struct ibv_qp *plain_qp(void)
{
	struct ibv_qp_init_attr init = {.send_cq = pair.scq[0].cq,
					.recv_cq = pair.rcq[0].cq,
					.cap = {8, 8, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pair.dev[0].pd, &init);

	vu_check(qp, "ibv_create_qp: %s", strerror(errno));
	return qp;
}

/* A QP for each state, as a post in a wrong one may leave something behind natively. */
static void log_states(void)
{
	struct vu_link link = vu_link_default(&pair.dev[0]);
	struct vu_addr peer = vu_addr_of(&pair.dev[1], pair.qp[1].qp);
	struct ibv_qp *qp[3];

	vu_at("posting in every state");
	for (int i = 0; i < 3; i++)
		qp[i] = plain_qp();
	vu_log("RESET to RTS: %d\n", vu_qp_to_state(qp[0], IBV_QPS_RTS));
	vu_log("RESET to RTR: %d\n", vu_qp_to_state(qp[0], IBV_QPS_RTR));
	log_post_in("RESET", qp[0]);
	vu_qp_to_init(&pair.dev[0], qp[1]);
	log_post_in("INIT", qp[1]);
	vu_qp_to_init(&pair.dev[0], qp[2]);
	vu_qp_to_rtr(&pair.dev[0], qp[2], &peer, &link);
	log_post_in("RTR", qp[2]);
	for (int i = 0; i < 3; i++)
		vu_check(!ibv_destroy_qp(qp[i]), "ibv_destroy_qp");
}

/* Every attribute that can be queried of a connected QP. */
static void log_attributes(void)
{
	const struct vu_addr peer = vu_addr_of(&pair.dev[1], pair.qp[1].qp);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	int err;

	memset(&a, 0, sizeof(a));
	err = ibv_query_qp(pair.qp[0].qp, &a, 2 * IBV_QP_DEST_QPN - 1, &init);
	vu_check(!err, "ibv_query_qp: %s", strerror(err));
	vu_check(a.dest_qp_num == peer.qpn, "dest_qp_num %u instead of %u", a.dest_qp_num,
		 peer.qpn);
	vu_check(!memcmp(&a.ah_attr.grh.dgid, &peer.gid, sizeof(peer.gid)), "another dgid");
	vu_log("rts: mtu %d rd %d/%d rnr_timer %d port %d timeout %d retry %d rnr %d access %#x "
	       "sgid %d hop %d tc %d sl %d\n",
	       (int)a.path_mtu, a.max_rd_atomic, a.max_dest_rd_atomic, a.min_rnr_timer, a.port_num,
	       a.timeout, a.retry_cnt, a.rnr_retry, a.qp_access_flags, a.ah_attr.grh.sgid_index,
	       a.ah_attr.grh.hop_limit, a.ah_attr.grh.traffic_class, a.ah_attr.sl);
	vu_log("data in order: %d %d\n",
	       ibv_query_qp_data_in_order(pair.qp[0].qp, IBV_WR_RDMA_WRITE, 0),
	       ibv_query_qp_data_in_order(pair.qp[0].qp, IBV_WR_SEND, 0));
}

/* ---- an opcode that the QP's type does not have ---- */

static void log_wrong_opcode(void)
{
	struct ibv_cq *cq = some_cq(10);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UC};
	struct vu_link link = vu_link_default(&dev[0]);
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, 8, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_READ, &sge, 9, IBV_SEND_SIGNALED), *bad;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	struct vu_qp q[2];
	struct vu_cq c = {.cq = cq};
	int err, n;

	vu_at("a READ on a UC QP");
	vu_qp_create(&q[0], &dev[0], &init, VU_POST_SEND);
	vu_qp_create(&q[1], &dev[0], &init, VU_POST_SEND);
	vu_connect(&dev[0], q[0].qp, &dev[0], q[1].qp, &link);
	vu_wr_remote(&wr, pair.mem[0].p + 64, pair.mem[0].mr->rkey);
	err = ibv_post_send(q[0].qp, &wr, &bad);
	n = err ? 0 : vu_cq_collect(&c, 1, &wc, 2);
	vu_log("READ on UC: post %d, %d completions, status %d\n", err, n, n ? (int)wc.status : 0);
	vu_qp_destroy(&q[0]);
	vu_qp_destroy(&q[1]);
	vu_check(!ibv_destroy_cq(cq), "ibv_destroy_cq");
}

/* ---- objects in use ---- */

static void log_result(const char *what, int err)
{
	vu_log("destroy %s: %d\n", what, err);
}

static void log_busy(void)
{
	struct ibv_srq_init_attr sinit = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(dev[0].pd, &sinit);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(dev[0].ctx);
	struct ibv_cq *cq = ibv_create_cq(dev[0].ctx, 10, NULL, ch, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.cap = {4, 0, 1, 0, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(dev[0].pd, &init);

	vu_at("destroying objects in use");
	vu_check(srq && ch && cq && qp, "creating objects: %s", strerror(errno));
	log_result("cq in use", ibv_destroy_cq(cq));
	log_result("srq in use", ibv_destroy_srq(srq));
	log_result("pd in use", ibv_dealloc_pd(dev[0].pd));
	log_result("channel in use", ibv_destroy_comp_channel(ch));
	log_result("qp", ibv_destroy_qp(qp));
	log_result("srq", ibv_destroy_srq(srq));
	log_result("channel of a cq", ibv_destroy_comp_channel(ch));
	log_result("cq", ibv_destroy_cq(cq));
	log_result("channel", ibv_destroy_comp_channel(ch));
}

/* ---- memory windows of type 1: ibv_bind_mw posts by itself ---- */

static void log_bind_mw(void)
{
	struct ibv_mr *mr =
		vu_reg(&pair.dev[0], pair.mem[0].p, 4096, VU_ACCESS | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pair.dev[0].pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = 99,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {mr, (uintptr_t)pair.mem[0].p, 4096, IBV_ACCESS_REMOTE_WRITE}};
	struct ibv_wc wc = {.wr_id = 0};
	uint32_t old;
	int err, n;

	vu_at("ibv_bind_mw");
	if (!mw) {
		vu_log("no memory windows: %d\n", errno);
		vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		return;
	}
	old = mw->rkey;
	err = ibv_bind_mw(pair.qp[0].qp, mw, &bind);
	n = err ? 0 : vu_cq_collect(&pair.scq[0], 1, &wc, 5);
	vu_log("bind: %d, %d completions, wr_id %d status %d opcode %d, rkey %s\n", err, n,
	       (int)wc.wr_id, (int)wc.status, (int)wc.opcode,
	       mw->rkey == old ? "as before" : "new");
	vu_log("dealloc: %d\n", ibv_dealloc_mw(mw));
	vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

/* ---- leaks ---- */

static unsigned int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	vu_check(d, "/proc/self/fd: %s", strerror(errno));
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* What is allocated: resident memory also grows while the heap fragments, to some bound. */
static unsigned long heap_kb(void)
{
	struct mallinfo2 m = mallinfo2();

	return (m.uordblks + m.hblkhd) / 1024;
}

/* A whole life: devices, QPs, some work, and a QP torn down with work queued. */
static void one_cycle(void)
{
	static const struct vu_pair_spec s = {.mem = 1u << 18, .send_wr = 32, .recv_wr = 4};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct vu_pair p;

	vu_pair_open(&p, &s);
	for (uint64_t i = 0; i < 16; i++) {
		sge = (struct ibv_sge){(uintptr_t)p.mem[0].p, 1u << 17, p.mem[0].mr->lkey};
		wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, i, i % 4 ? 0 : IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, p.mem[1].p, p.mem[1].mr->rkey);
		vu_must_post(p.qp[0].qp, &wr);
	}
	vu_cq_expect_ok(&p.scq[0], 0, "the first WRITE");
	vu_pair_close(&p);
}

static void check_leaks(void)
{
	unsigned int fds = 0;
	unsigned long kb = 0;

	vu_at("many life cycles");
	for (uint64_t i = 0; i < cycles; i++) {
		one_cycle();
		if (i == cycles / 4) { /* caches are filled */
			fds = open_fds();
			kb = heap_kb();
		}
	}
	vu_check(open_fds() == fds, "%u open files after %u cycles, %u after %u", open_fds(),
		 (unsigned int)cycles, fds, (unsigned int)cycles / 4);
	vu_check(heap_kb() < kb + 256, "%lu KiB allocated after %u cycles, %lu after %u", heap_kb(),
		 (unsigned int)cycles, kb, (unsigned int)cycles / 4);
	vu_note("%lu KiB, then %lu\n", kb, heap_kb());
}

int main(int argc, char **argv)
{
	const struct vu_opt opts[] = {
		{"cycles", VU_OPT_NUM, &cycles, "life cycles of the leak check"},
	};

	vu.timeout = 120;
	vu_parse(argc, argv, "limits", "what the control calls answer", opts, VU_ARRAY(opts));
	vu_dev_open_pair(dev);
	log_device();
	log_device_ex();
	log_caps();
	log_refusals();
	log_cqs();

	vu_pair_open(&pair, &spec);
	log_bad_posts();
	log_bad_atomics();
	still_works();
	log_bind_mw();
	log_attributes();
	log_wrong_opcode();
	log_states();
	log_bad_recvs();
	vu_pair_close(&pair);

	log_busy();
	check_leaks();
	vu_dev_close(&dev[0]);
	vu_dev_close(&dev[1]);
	return vu_pass("answers logged, %u life cycles", (unsigned int)cycles);
}
