/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faults: what a program sees when work requests fail. Each case posts a few WRs of which one goes
 * wrong, or pulls the QP away under them, and checks the list of completions against what the
 * specification allows and the native device does.
 *
 * The log gets the lists that do not depend on timing; the others are noted.
 */
#include "faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a WR that the target refuses ---- */

static void bad_rkey(const char *name, enum ibv_wr_opcode op, uint32_t len, int at)
{
	struct verdict v = {at, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	make_jobs(&r, 8, op, len);
	r.job[at].rkey ^= 0x5500;
	post_jobs(&r);
	finish(&r, &v, true);
}

static void case_rkey_write_first(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 0);
}
static void case_rkey_write(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 3);
}
static void case_rkey_write_unsignaled(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 4);
}
static void case_rkey_write_last(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 100000, 7);
}
static void case_rkey_write_small(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_WRITE, 30, 3);
}
static void case_rkey_read(const char *name)
{
	bad_rkey(name, IBV_WR_RDMA_READ, 100000, 3);
}
static void case_rkey_atomic(const char *name)
{
	bad_rkey(name, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 3);
}

/* The target range leaves its MR after @inside bytes. */
static void bad_range(const char *name, enum ibv_wr_opcode op, uint32_t inside)
{
	struct verdict v = {3, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	const uint32_t len = 300000, room = 1u << 20;
	struct ibv_mr *mr;
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	mr = vu_reg(&r.p.dev[1], r.p.mem[1].p + MEM - 2 * room, room, VU_ACCESS);
	make_jobs(&r, 6, op, len);
	r.job[3].rkey = mr->rkey;
	r.job[3].remote = r.p.mem[1].p + MEM - room - inside;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	/* nothing after the end of the MR may have changed */
	vu_fill(r.p.mem[0].p, MEM, 2);
	vu_check(!memcmp(r.p.mem[0].p + MEM - room, r.p.mem[1].p + MEM - room, room),
		 "%s: bytes beyond the MR were written", name);
	vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	vu_pair_close(&r.p);
}

static void case_range_first(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 10);
}
static void case_range_middle(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 150000);
}
static void case_range_last(const char *name)
{
	bad_range(name, IBV_WR_RDMA_WRITE, 299999);
}
static void case_range_read_middle(const char *name)
{
	bad_range(name, IBV_WR_RDMA_READ, 150000);
}
static void case_range_read_last(const char *name)
{
	bad_range(name, IBV_WR_RDMA_READ, 299999);
}

static void case_not_writable(const char *name)
{
	struct verdict v = {2, BIT(IBV_WC_REM_ACCESS_ERR), FLUSH_MUST, false};
	struct ibv_mr *mr;
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	mr = vu_reg(&r.p.dev[1], r.p.mem[1].p, MEM, IBV_ACCESS_REMOTE_READ);
	make_jobs(&r, 4, IBV_WR_RDMA_WRITE, 50000);
	r.job[2].rkey = mr->rkey;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	vu_check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	vu_pair_close(&r.p);
}

/* ---- a WR that the initiator itself cannot do ---- */

/*
 * rxe 6.1 finds a bad lkey while it builds packets and gives LOC_QP_OP_ERR or LOC_PROT_ERR or a
 * flush for it; which one depends on the packet. The specification says LOC_PROT_ERR.
 */
#define LOCAL_ERRORS                                                                      \
	(BIT(IBV_WC_LOC_PROT_ERR) | BIT(IBV_WC_LOC_QP_OP_ERR) | BIT(IBV_WC_LOC_LEN_ERR) | \
	 BIT(IBV_WC_WR_FLUSH_ERR))

static void bad_lkey(const char *name, enum ibv_wr_opcode op, int sge)
{
	struct verdict v = {3, LOCAL_ERRORS, FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	v.may_be_silent = r.p.dev[0].is_rxe;
	make_jobs(&r, 6, op, 300000);
	r.job[3].lkey[sge] ^= 0x5500;
	post_jobs(&r);
	finish(&r, &v, !v.may_be_silent);
}

static void case_lkey_write_first(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 0);
}
static void case_lkey_write_middle(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 1);
}
static void case_lkey_write_last(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_WRITE, 2);
}
static void case_lkey_read_first(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_READ, 0);
}
static void case_lkey_read_last(const char *name)
{
	bad_lkey(name, IBV_WR_RDMA_READ, 2);
}

/* ---- receives ---- */

static void post_recvs(struct run *r, int n, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)r->p.mem[1].p, len, r->p.mem[1].mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	for (int i = 0; i < n; i++) {
		wr.wr_id = (uint64_t)i;
		sge.addr = (uintptr_t)r->p.mem[1].p + (uintptr_t)i * len;
		vu_must_recv(r->p.qp[1].qp, &wr);
	}
}

static void no_receive(const char *name, uint8_t rnr_retry, int ready, uint32_t len)
{
	struct verdict v = {ready, BIT(IBV_WC_RNR_RETRY_EXC_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	r.link.rnr_retry = rnr_retry;
	connect_run(&r);
	post_recvs(&r, ready, len);
	make_jobs(&r, 6, IBV_WR_SEND, len);
	post_jobs(&r);
	finish(&r, &v, true);
}

static void case_rnr_retry_0(const char *name)
{
	no_receive(name, 0, 0, 5000);
}
static void case_rnr_retry_1(const char *name)
{
	no_receive(name, 1, 2, 50000);
}

static void case_rnr_late_receive(const char *name)
{
	struct verdict v = {-1, 0, FLUSH_MUST, false};
	struct ibv_wc wc[6];
	struct run r;

	open_run(&r, name);
	connect_run(&r);
	make_jobs(&r, 6, IBV_WR_SEND, 50000);
	post_jobs(&r);
	vu_sleep(0.2);
	vu_check(!ibv_poll_cq(r.p.scq[0].cq, 1, wc), "a SEND completed without a receive");
	post_recvs(&r, 6, 50000);
	vu_check(vu_cq_collect(&r.p.rcq[1], 6, wc, 20) == 6, "%s: not all received", name);
	for (int i = 0; i < 6; i++)
		vu_check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)i &&
				 wc[i].byte_len == 50000,
			 "%s: receive %d", name, i);
	vu_check(!memcmp(r.p.mem[0].p, r.p.mem[1].p, 50000), "%s: wrong bytes", name);
	finish(&r, &v, true);
}

static void case_receive_too_short(const char *name)
{
	/* REM_INV_REQ_ERR by the book, REM_OP_ERR on rxe */
	struct verdict v = {2, BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR), FLUSH_MUST,
			    false};
	struct ibv_wc wc[4];
	struct run r;
	int n;

	open_run(&r, name);
	connect_run(&r);
	post_recvs(&r, 4, 20000);
	make_jobs(&r, 4, IBV_WR_SEND, 20000);
	r.job[2].len = 20010;
	post_jobs(&r);
	collect(&r);
	print_list(&r, true);
	judge(&r, &v);
	n = vu_cq_collect(&r.p.rcq[1], 4, wc, QUIET);
	vu_check(n >= 3 && wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS &&
			 wc[2].status != IBV_WC_SUCCESS,
		 "%s: %d receive completions, the third %d", name, n,
		 n > 2 ? (int)wc[2].status : -1);
	vu_log("%s: %d receive completions, %d\n", name, n, (int)wc[2].status);
	vu_pair_close(&r.p);
}

static void case_receives_flushed(const char *name)
{
	struct ibv_wc wc[5];
	struct run r;
	int n;

	open_run(&r, name);
	connect_run(&r);
	post_recvs(&r, 5, 100);
	vu_check(!vu_qp_to_state(r.p.qp[1].qp, IBV_QPS_ERR), "modify to ERR");
	n = vu_cq_collect(&r.p.rcq[1], 5, wc, 5);
	vu_log("%s: %d\n", name, n);
	vu_check(n == 5, "%s: %d of 5 receives flushed", name, n);
	for (int i = 0; i < n; i++)
		vu_check(wc[i].wr_id == (uint64_t)i && wc[i].status == IBV_WC_WR_FLUSH_ERR,
			 "%s: entry %d: wr_id %d status %d", name, i, (int)wc[i].wr_id,
			 (int)wc[i].status);
	vu_pair_close(&r.p);
}

/* ---- the peer does not answer ---- */

static void case_retry_exceeded(const char *name)
{
	struct verdict v = {0, BIT(IBV_WC_RETRY_EXC_ERR), FLUSH_MUST, false};
	struct run r;

	open_run(&r, name);
	r.link.retry_cnt = 1;
	r.link.timeout = 12; /* 17 ms */
	connect_run(&r);
	vu_check(!vu_qp_to_state(r.p.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
	make_jobs(&r, 8, IBV_WR_RDMA_WRITE, 100000);
	post_jobs(&r);
	finish(&r, &v, true);
}

enum gone { GONE_ERR, GONE_RESET, GONE_DESTROYED };

/* The peer's QP goes away while large WRITEs are under way. */
static void peer_gone(const char *name, enum ibv_wr_opcode op, enum gone how)
{
	struct verdict v = {-1, BIT(IBV_WC_RETRY_EXC_ERR) | BIT(IBV_WC_REM_OP_ERR), FLUSH_MUST,
			    false};
	struct run r;

	open_run(&r, name);
	r.link.retry_cnt = 2;
	r.link.timeout = 14; /* 67 ms */
	connect_run(&r);
	make_jobs(&r, 8, op, 1u << 20);
	post_jobs(&r);
	vu_sleep(0.03);
	if (how == GONE_DESTROYED)
		vu_qp_destroy(&r.p.qp[1]);
	else
		vu_check(!vu_qp_to_state(r.p.qp[1].qp,
					 how == GONE_ERR ? IBV_QPS_ERR : IBV_QPS_RESET),
			 "modify the peer");
	finish(&r, &v, false);
}

static void case_peer_to_error(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_ERR);
}
static void case_rough_peer_to_reset(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_RESET);
}
static void case_peer_destroyed(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_WRITE, GONE_DESTROYED);
}
static void case_peer_destroyed_read(const char *name)
{
	peer_gone(name, IBV_WR_RDMA_READ, GONE_DESTROYED);
}

/* ---- the table ---- */

static const struct {
	const char *name;
	void (*run)(const char *name);
	bool rough; /* harms the kernel where a driver is weak: only with --rough */
} cases[] = {
	{"rkey-write-first", case_rkey_write_first, false},
	{"rkey-write", case_rkey_write, false},
	{"rkey-write-unsignaled", case_rkey_write_unsignaled, false},
	{"rkey-write-last", case_rkey_write_last, false},
	{"rkey-write-small", case_rkey_write_small, false},
	{"rkey-read", case_rkey_read, false},
	{"rkey-atomic", case_rkey_atomic, false},
	{"range-first", case_range_first, false},
	{"range-middle", case_range_middle, false},
	{"range-last", case_range_last, false},
	{"range-read-middle", case_range_read_middle, false},
	{"range-read-last", case_range_read_last, false},
	{"not-writable", case_not_writable, false},
	{"lkey-write-first", case_lkey_write_first, false},
	{"lkey-write-middle", case_lkey_write_middle, false},
	{"lkey-write-last", case_lkey_write_last, false},
	{"lkey-read-first", case_lkey_read_first, false},
	{"lkey-read-last", case_lkey_read_last, false},
	{"rnr-retry-0", case_rnr_retry_0, false},
	{"rnr-retry-1", case_rnr_retry_1, false},
	{"rnr-late-receive", case_rnr_late_receive, false},
	{"receive-too-short", case_receive_too_short, false},
	{"receives-flushed", case_receives_flushed, false},
	{"retry-exceeded", case_retry_exceeded, false},
	{"peer-to-error", case_peer_to_error, false},
	{"peer-destroyed", case_peer_destroyed, false},
	{"peer-destroyed-read", case_peer_destroyed_read, false},
	{"to-error-full-queue", case_to_error_full_queue, false},
	{"post-in-error", case_post_in_error, false},
	{"reset-and-reuse", case_reset_and_reuse, false},
	{"error-and-reuse", case_error_and_reuse, false},
	{"destroy-with-work", case_destroy_with_work, false},
	{"neighbour-unharmed", case_neighbour_unharmed, false},
	{"rough-reset-and-reuse", case_rough_reset_and_reuse, true},
	{"rough-peer-to-reset", case_rough_peer_to_reset, true},
};

enum vu_post faults_api;

int main(int argc, char **argv)
{
	const char *only = NULL, *api = "send";
	bool list = false, rough = false;
	const struct vu_opt opts[] = {
		{"api", VU_OPT_STR, &api, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"case", VU_OPT_STR, &only, "run this case only"},
		{"rough", VU_OPT_FLAG, &rough,
		 "also the cases that rxe 6.1 does not survive (resets under load)"},
		{"list", VU_OPT_FLAG, &list, "print the names of the cases"},
	};
	int n = 0;

	vu.timeout = 120;
	vu_parse(argc, argv, "faults", "the completions of work requests that fail", opts,
		 VU_ARRAY(opts));
	faults_api = vu_post_of(api);
	for (size_t i = 0; i < VU_ARRAY(cases); i++) {
		if (list) {
			puts(cases[i].name);
			continue;
		}
		if (only ? strcmp(only, cases[i].name) : cases[i].rough && !rough)
			continue;
		cases[i].run(cases[i].name);
		n++;
	}
	if (list)
		return 0;
	vu_check(n, "no case \"%s\"; see --list", only);
	return vu_pass("%d cases", n);
}
