/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shared: objects that only receive and may belong to others. An XRC target QP that a second
 * context opens, senders of all kinds to it, and work queues with their indirection tables, as far
 * as the device has them. What is refused must be refused alike under a preload.
 */
#include "verbs_util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#define DEPTH 32
#define LEN 20000

/* [0] sends, [1] has the target, [2] is another context of the same device, which opens it. */
static struct vu_dev dev[3];
static struct ibv_xrcd *xrcd[3];
static struct vu_cq scq, rcq;
static struct vu_mem mem[2];
static struct ibv_srq *srq;
static uint32_t srqn;
static struct vu_qp sender;
static struct ibv_qp *target;

static void log_err(const char *what, bool failed)
{
	int err = errno;

	vu_log("%s: %s\n", what, failed ? strerror(err) : "ok");
}

/* ---- XRC ---- */

static struct ibv_xrcd *open_xrcd(struct vu_dev *d, int fd)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask =
						  IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = fd,
					  .oflags = O_CREAT};
	struct ibv_xrcd *x = ibv_open_xrcd(d->ctx, &attr);

	vu_check(x, "ibv_open_xrcd: %s", strerror(errno));
	return x;
}

static void make_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = DEPTH, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = dev[1].pd,
		.xrcd = xrcd[1],
		.cq = rcq.cq};

	srq = ibv_create_srq_ex(dev[1].ctx, &attr);
	vu_check(srq && !ibv_get_srq_num(srq, &srqn), "an XRC SRQ: %s", strerror(errno));
}

static struct ibv_qp *make_target(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd[1]};
	struct ibv_qp *qp = ibv_create_qp_ex(dev[1].ctx, &attr);

	vu_check(qp, "an XRC target: %s", strerror(errno));
	return qp;
}

static void make_sender(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = scq.cq,
		.cap = {.max_send_wr = DEPTH, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev[0].pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};

	sender.qp = ibv_create_qp_ex(dev[0].ctx, &attr);
	vu_check(sender.qp, "an XRC sender: %s", strerror(errno));
	sender.ex = ibv_qp_to_qp_ex(sender.qp);
}

/* XRC QPs take the attributes of RC, the target but for those of sending. */
static void to_rtr(struct vu_dev *d, struct ibv_qp *qp, const struct vu_addr *peer,
		   const struct vu_link *l)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = l->mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = l->rd_atomic,
		.min_rnr_timer = l->min_rnr_timer,
		.ah_attr = {
			.is_global = 1,
			.dlid = peer->lid,
			.port_num = 1,
			.grh = {.dgid = peer->gid, .sgid_index = d->gid_index, .hop_limit = 64}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	vu_check(!ibv_modify_qp(qp, &attr, mask), "XRC to RTR");
}

static void to_rts(struct ibv_qp *qp, uint32_t psn, const struct vu_link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .sq_psn = psn,
				   .timeout = l->timeout,
				   .retry_cnt = l->retry_cnt,
				   .rnr_retry = l->rnr_retry,
				   .max_rd_atomic = l->rd_atomic};

	vu_check(!ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		 "XRC to RTS");
}

/*
 * @side: through which handle the target is brought up. It is a new one: libmlx5 44 crashes when an
 * XRC target goes to RESET.
 */
static void connect_xrc(struct vu_dev *d, struct ibv_qp *side)
{
	struct vu_link l = vu_link_default(&dev[0]);
	struct vu_addr from = vu_addr_of(&dev[0], sender.qp), to = vu_addr_of(d, side);

	vu_check(!vu_qp_to_state(sender.qp, IBV_QPS_RESET), "XRC to RESET");
	vu_qp_to_init(&dev[0], sender.qp);
	vu_qp_to_init(d, side);
	to_rtr(&dev[0], sender.qp, &to, &l);
	to_rtr(d, side, &from, &l);
	to_rts(sender.qp, from.psn, &l);
}

static int send_one(enum ibv_wr_opcode op, uint32_t len, bool builders)
{
	struct ibv_sge sge = {(uintptr_t)mem[0].p, len, mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(op, &sge, 5, IBV_SEND_SIGNALED), *bad;

	vu_wr_remote(&wr, mem[1].p, mem[1].mr->rkey);
	wr.qp_type.xrc.remote_srqn = srqn;
	if (!builders)
		return ibv_post_send(sender.qp, &wr, &bad);
	ibv_wr_start(sender.ex);
	sender.ex->wr_id = wr.wr_id;
	sender.ex->wr_flags = wr.send_flags;
	if (op == IBV_WR_SEND)
		ibv_wr_send(sender.ex);
	else
		ibv_wr_rdma_write(sender.ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
	ibv_wr_set_xrc_srqn(sender.ex, srqn);
	ibv_wr_set_sge(sender.ex, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(sender.ex);
}

static void receive(void)
{
	struct ibv_sge sge = {(uintptr_t)mem[1].p, LEN, mem[1].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 6, .sg_list = &sge, .num_sge = 1}, *bad;

	vu_check(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

/* Both operations through both interfaces. */
static void traffic(const char *what)
{
	vu_at(what);
	for (int i = 0; i < 8; i++) {
		bool send = i & 1, builders = i & 2;
		uint32_t len = i & 4 ? LEN : 100;

		vu_fill(mem[0].p, LEN, (uint64_t)i);
		memset(mem[1].p, 0, LEN);
		if (send)
			receive();
		vu_check(!send_one(send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, len, builders),
			 "posting");
		vu_cq_expect_ok(&scq, 5, what);
		if (send)
			vu_cq_expect_ok(&rcq, 6, what);
		vu_check(!memcmp(mem[0].p, mem[1].p, len), "%s: wrong bytes", what);
	}
	vu_log("%s: 8\n", what);
}

/* What is opened stays until its context is closed: libmlx5 44 crashes when it is destroyed. */
static struct ibv_qp *open_target(uint32_t qpn, struct ibv_xrcd *x, uint32_t mask)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = mask, .qp_num = qpn, .xrcd = x, .qp_type = IBV_QPT_XRC_RECV};

	return ibv_open_qp(dev[2].ctx, &attr);
}

#define OPEN_MASK (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE)

static void refuse_opening(void)
{
	vu_at("opening what is not there");
	log_err("open without a mask", !open_target(target->qp_num, xrcd[2], 0));
	log_err("open another number", !open_target(target->qp_num + 100, xrcd[2], OPEN_MASK));
	log_err("open a sender", !open_target(sender.qp->qp_num, xrcd[2], OPEN_MASK));
}

static void query_both(struct ibv_qp *opened)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(target, &attr, IBV_QP_STATE, &init);

	vu_log("query: %d state %d", err, err ? -1 : (int)attr.qp_state);
	err = ibv_query_qp(opened, &attr, IBV_QP_STATE, &init);
	vu_log(", opened: %d state %d\n", err, err ? -1 : (int)attr.qp_state);
}

static void xrc(void)
{
	struct ibv_qp *opened;

	make_srq();
	target = make_target();
	make_sender();
	connect_xrc(&dev[1], target);
	traffic("XRC");
	refuse_opening();

	opened = open_target(target->qp_num, xrcd[2], OPEN_MASK);
	vu_check(opened, "ibv_open_qp: %s", strerror(errno));
	vu_check(opened->qp_num == target->qp_num && opened->context == dev[2].ctx &&
			 opened->qp_type == IBV_QPT_XRC_RECV,
		 "another QP was opened");
	query_both(opened);
	traffic("XRC, opened twice");
	vu_check(!vu_qp_to_state(opened, IBV_QPS_ERR), "ERR through the second handle");
	query_both(opened);
	vu_check(!ibv_destroy_qp(target), "destroying an XRC target");

	target = make_target();
	opened = open_target(target->qp_num, xrcd[2], OPEN_MASK);
	vu_check(opened, "ibv_open_qp: %s", strerror(errno));
	connect_xrc(&dev[2], opened);
	traffic("XRC, through the second handle");
	vu_check(!ibv_destroy_qp(sender.qp) && !ibv_destroy_qp(target) && !ibv_destroy_srq(srq),
		 "destroying XRC objects");
}

/* ---- receive side scaling ---- */

static void wqs(void)
{
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ,
					.max_wr = DEPTH,
					.max_sge = 1,
					.pd = dev[1].pd,
					.cq = rcq.cq};
	struct ibv_rwq_ind_table_init_attr table = {0};
	struct ibv_rwq_ind_table *t = NULL;
	struct ibv_wq *wq;

	vu_at("work queues");
	errno = 0;
	wq = ibv_create_wq(dev[1].ctx, &attr);
	log_err("a WQ", !wq);
	table.ind_tbl = &wq;
	errno = 0;
	if (wq)
		t = ibv_create_rwq_ind_table(dev[1].ctx, &table);
	if (wq)
		log_err("an indirection table", !t);
	if (wq)
		vu_log("the CQ of a WQ: %d\n", ibv_destroy_cq(rcq.cq));
	if (t)
		vu_log("a WQ in a table: %d\n", ibv_destroy_wq(wq));
	if (t)
		vu_check(!ibv_destroy_rwq_ind_table(t), "ibv_destroy_rwq_ind_table");
	if (wq)
		vu_check(!ibv_destroy_wq(wq), "ibv_destroy_wq");
}

int main(int argc, char **argv)
{
	char path[] = "/tmp/rnice-xrcd.XXXXXX";
	int fd;

	vu_parse(argc, argv, "shared", "queues that others have, too", NULL, 0);
	vu_dev_open_pair(dev);
	vu_dev_open(&dev[2], vu.peer_dev);
	vu_cq_create(&scq, &dev[0], DEPTH, NULL, VU_POLL_MIXED, NULL);
	vu_cq_create(&rcq, &dev[1], DEPTH, NULL, VU_POLL_MIXED, NULL);
	for (int i = 0; i < 2; i++)
		vu_mem_alloc(&mem[i], &dev[i], LEN, VU_ACCESS);
	wqs();
	if (!(dev[0].attr.device_cap_flags & IBV_DEVICE_XRC)) {
		vu_log("no XRC\n");
		return vu_pass("no XRC");
	}
	fd = mkstemp(path);
	vu_check(fd >= 0 && !unlink(path), "%s: %s", path, strerror(errno));
	for (int i = 0; i < 3; i++)
		xrcd[i] = open_xrcd(&dev[i], fd);
	xrc();
	for (int i = 0; i < 3; i++)
		vu_log("closing XRC domain %d: %d\n", i, ibv_close_xrcd(xrcd[i]));
	close(fd);
	vu_cq_destroy(&scq);
	vu_cq_destroy(&rcq);
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			vu_mem_free(&mem[i]);
		vu_dev_close(&dev[i]);
	}
	return vu_pass("XRC targets opened");
}
