/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program gets from the emulated device: completion statuses, asynchronous events,
 * refused arguments, lifetimes, memory windows, CQ resize, inline data around the ring.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

static void open_rc(struct pair *p)
{
	static const struct pair_opt rc = {0};

	pair_open(p, &rc);
}

static void bad_remote_key(void)
{
	struct pair p;

	open_rc(&p);
	must(!post_write(&p, 1, 0, 64, p.s[1].mr->rkey + 1));
	check("a bad rkey is a remote access error",
	      wait_wc(p.s[0].cq).status == IBV_WC_REM_ACCESS_ERR);
	must(!post_write(&p, 2, 0, 64, p.s[1].mr->rkey));
	check("what follows a failed WR is flushed",
	      wait_wc(p.s[0].cq).status == IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

static void bad_local_key(void)
{
	struct pair p;

	open_rc(&p);
	must(!post_recv(&p, 1, 1, 64));
	must(!post_send(&p, 0, 2, 64, p.s[0].mr->lkey + 1));
	check("a bad lkey is a local protection error",
	      wait_wc(p.s[0].cq).status == IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}

static void short_receive(void)
{
	struct pair p;

	open_rc(&p);
	must(!post_recv(&p, 1, 1, 32));
	must(!post_send(&p, 0, 2, 64, p.s[0].mr->lkey));
	check("too long a SEND is an invalid request at the sender",
	      wait_wc(p.s[0].cq).status == IBV_WC_REM_INV_REQ_ERR);
	check("and a length error at the receiver",
	      wait_wc(p.s[1].cq).status == IBV_WC_LOC_LEN_ERR);
	pair_close(&p);
}

static void nobody_receives(void)
{
	const struct pair_opt o = {.rnr_retry = 1};
	struct pair p;

	pair_open(&p, &o);
	must(!post_send(&p, 0, 1, 64, p.s[0].mr->lkey));
	check("RNR retries run out", wait_wc(p.s[0].cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close(&p);
	open_rc(&p); /* rnr_retry 7 */
	must(!post_send(&p, 0, 1, 64, p.s[0].mr->lkey));
	usleep(50000);
	must(!post_recv(&p, 1, 2, 64));
	check("a late receive is found", wait_wc(p.s[0].cq).status == IBV_WC_SUCCESS);
	check("and completes", wait_wc(p.s[1].cq).wr_id == 2);
	pair_close(&p);
}

static void peer_gone(void)
{
	const struct pair_opt o = {.timeout = 8, .retry_cnt = 1};
	struct pair p;

	pair_open(&p, &o);
	must(!ibv_destroy_qp(p.s[1].qp));
	p.s[1].qp = NULL;
	must(!post_write(&p, 1, 0, 64, p.s[1].mr->rkey));
	check("a QP without a peer runs out of retries",
	      wait_wc(p.s[0].cq).status == IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

static void flush(void)
{
	struct ibv_wc wc;
	struct pair p;
	int i, good = 0;

	open_rc(&p);
	for (i = 0; i < 5; i++)
		must(!post_recv(&p, 0, i, 64));
	qp_to_err(p.s[0].qp);
	must(!post_write(&p, 5, 0, 64, p.s[1].mr->rkey));
	for (i = 0; i < 6; i++) {
		wc = wait_wc(p.s[0].cq);
		good += wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	check("a QP in ERR flushes both queues", good == 6);
	check("and no more", !ibv_poll_cq(p.s[0].cq, 1, &wc));
	pair_close(&p);
}

static bool async_is(struct pair *p, int wanted)
{
	int ev;

	while ((ev = wait_async(p->ctx)) >= 0)
		if (ev == wanted)
			return true;
	return false;
}

static void async_events(void)
{
	const struct pair_opt with_srq = {.srq = true}, tiny = {.cqe = 1};
	struct ibv_srq_attr limit = {.srq_limit = 3};
	struct pair p;
	int i;

	open_rc(&p);
	must(!post_write(&p, 1, 0, 64, p.s[1].mr->rkey + 1));
	check("a refused access is an event at the target", async_is(&p, IBV_EVENT_QP_ACCESS_ERR));
	pair_close(&p);
	pair_open(&p, &with_srq);
	for (i = 0; i < 4; i++)
		must(!post_recv(&p, 1, i, 64));
	must(!ibv_modify_srq(p.srq, &limit, IBV_SRQ_LIMIT));
	for (i = 0; i < 2; i++) {
		must(!post_send(&p, 0, i, 64, p.s[0].mr->lkey));
		must(wait_wc(p.s[0].cq).status == IBV_WC_SUCCESS);
	}
	check("an SRQ below its limit is an event", async_is(&p, IBV_EVENT_SRQ_LIMIT_REACHED));
	qp_to_err(p.s[1].qp);
	check("a QP on an SRQ reports its last WQE", async_is(&p, IBV_EVENT_QP_LAST_WQE_REACHED));
	pair_close(&p);
	pair_open(&p, &tiny);
	for (i = 0; i < 8; i++)
		must(!post_write(&p, i, 0, 64, p.s[1].mr->rkey));
	check("a CQ that overflows is an event", async_is(&p, IBV_EVENT_CQ_ERR));
	pair_close(&p);
}

static void arguments(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	struct ibv_port_attr port;
	struct pair p;

	open_rc(&p);
	check("remote write needs local write",
	      !ibv_reg_mr(p.pd, p.s[0].mem, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	check("memory that does not exist cannot be registered",
	      !ibv_reg_mr(p.pd, (void *)16, 64, 0) && errno == EFAULT);
	check("port 2 does not exist", ibv_query_port(p.ctx, 2, &port) == EINVAL);
	check("port 1 is up", !ibv_query_port(p.ctx, 1, &port) && port.state == IBV_PORT_ACTIVE);
	a.qp_state = IBV_QPS_INIT;
	check("RTS cannot become INIT", ibv_modify_qp(p.s[0].qp, &a, IBV_QP_STATE) == EINVAL);
	a.qp_state = IBV_QPS_RESET;
	check("RESET is always possible", !ibv_modify_qp(p.s[0].qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_INIT;
	check("INIT needs its attributes",
	      ibv_modify_qp(p.s[0].qp, &a, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
	check("a CQ cannot be huge", !ibv_create_cq(p.ctx, 1 << 25, NULL, NULL, 0));
	check("nor on a vector that is not there", !ibv_create_cq(p.ctx, 16, NULL, NULL, 4));
	pair_close(&p);
}

static void lifetimes(void)
{
	const struct pair_opt o = {.srq = true};
	struct pair p;

	pair_open(&p, &o);
	check("a CQ in use stays", ibv_destroy_cq(p.s[0].cq) == EBUSY);
	check("a PD in use stays", ibv_dealloc_pd(p.pd) == EBUSY);
	check("an SRQ in use stays", ibv_destroy_srq(p.srq) == EBUSY);
	pair_close(&p);
	check("all goes in the right order", true);
	open_rc(&p);
	ibv_close_device(p.ctx);
	check("a device closes with objects left", true);
}

static int bind_window(struct pair *p, struct ibv_mw *mw, size_t len)
{
	struct ibv_send_wr wr = {.wr_id = 7,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = p->s[1].mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)p->s[1].mem;
	wr.bind_mw.bind_info.length = len;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (ibv_post_send(p->s[1].qp, &wr, &bad))
		return -1;
	mw->rkey = wr.bind_mw.rkey;
	return wait_wc(p->s[1].cq).status;
}

static void windows(void)
{
	struct ibv_mw *mw;
	struct pair p;

	open_rc(&p);
	must((mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2)) != NULL);
	check("a window binds", bind_window(&p, mw, 4096) == IBV_WC_SUCCESS);
	check("a region with a window stays", ibv_dereg_mr(p.s[1].mr) == EBUSY);
	memset(p.s[0].mem, 0x5a, 64);
	must(!post_write(&p, 1, 0, 64, mw->rkey));
	check("a WRITE goes through a window",
	      wait_wc(p.s[0].cq).status == IBV_WC_SUCCESS && p.s[1].mem[63] == 0x5a);
	must(!post_write(&p, 2, 4096, 64, mw->rkey));
	check("but not past it", wait_wc(p.s[0].cq).status == IBV_WC_REM_ACCESS_ERR);
	must(!ibv_dealloc_mw(mw));
	pair_close(&p);
}

static void resize(void)
{
	struct pair p;
	int i, good = 0;

	open_rc(&p);
	for (i = 0; i < 20; i++)
		must(!post_write(&p, i, 0, 64, p.s[1].mr->rkey));
	usleep(100000);
	check("a CQ does not shrink below its contents", ibv_resize_cq(p.s[0].cq, 8) == EINVAL);
	check("a CQ with entries grows", !ibv_resize_cq(p.s[0].cq, 1000));
	for (i = 0; i < 20; i++)
		good += wait_wc(p.s[0].cq).wr_id == (uint64_t)i;
	check("and keeps them in order", good == 20);
	must(!post_write(&p, 99, 0, 64, p.s[1].mr->rkey));
	check("and goes on working", wait_wc(p.s[0].cq).wr_id == 99);
	pair_close(&p);
}

/* Sizes that make WQEs of one to five units, so that all of them cross the end of the ring. */
static void inline_wrap(void)
{
	const struct pair_opt o = {.sq_sig_all = true};
	struct pair p;
	int i, good = 0;

	pair_open(&p, &o);
	for (i = 0; i < 2000; i++) {
		uint32_t len = 1 + (i * 37) % 220;
		struct ibv_sge sge = {(uintptr_t)p.s[0].mem, len, 0};
		struct ibv_send_wr wr = {.wr_id = i,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_INLINE},
				   *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)p.s[1].mem;
		wr.wr.rdma.rkey = p.s[1].mr->rkey;
		memset(p.s[0].mem, i & 0x7f, len);
		must(!ibv_post_send(p.s[0].qp, &wr, &bad));
		memset(p.s[0].mem, 0xff, len);
		good += wait_wc(p.s[0].cq).wr_id == (uint64_t)i && p.s[1].mem[0] == (i & 0x7f) &&
			p.s[1].mem[len - 1] == (i & 0x7f);
	}
	check("2000 inline WRITEs of all sizes arrive", good == 2000);
	pair_close(&p);
}

int main(void)
{
	bad_remote_key();
	bad_local_key();
	short_receive();
	nobody_receives();
	peer_gone();
	flush();
	async_events();
	arguments();
	lifetimes();
	windows();
	resize();
	inline_wrap();
	return failures ? 1 : 0;
}
