/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * builders: corners of ibv_wr_* that a program can see. What each call returns and which
 * completions come goes to the log, which must be the same natively and preloaded.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define DEPTH 16
#define MEM (4u << 20)
#define HALF (MEM / 2)

static struct vu_pair pair;
static struct vu_pair_spec spec = {.mem = MEM,
				   .send_wr = DEPTH,
				   .recv_wr = 2,
				   .sge = 3,
				   .inline_data = 64,
				   .cqe = 4 * DEPTH,
				   .post = VU_POST_WR};

static struct ibv_qp_ex *ex(void)
{
	return pair.qp[0].ex;
}

/* ---- helpers ---- */

static void write_wr(uint64_t id, unsigned int flags, size_t at)
{
	ex()->wr_id = id;
	ex()->wr_flags = flags;
	ibv_wr_rdma_write(ex(), pair.mem[1].mr->rkey, (uintptr_t)pair.mem[1].p + at);
}

static void whole_write(uint64_t id, unsigned int flags, size_t at, uint32_t len)
{
	write_wr(id, flags, at);
	ibv_wr_set_sge(ex(), pair.mem[0].mr->lkey, (uintptr_t)pair.mem[0].p + at, len);
}

/* The completions that come, until none came for a while. */
static void log_completions(const char *what, int expected)
{
	struct ibv_wc wc[64];
	int n = vu_cq_collect(&pair.scq[0], expected, wc, 5);

	n += vu_cq_collect(&pair.scq[0], 64 - n, wc + n, 0.03);
	vu_log("%s:", what);
	for (int i = 0; i < n; i++)
		vu_log(" %" PRIu64 "=%d", wc[i].wr_id, (int)wc[i].status);
	vu_log("\n");
}

static void complete(const char *what)
{
	vu_log("%s: %d\n", what, ibv_wr_complete(ex()));
}

static void check_copied(const char *what, size_t at, size_t len)
{
	vu_check(!memcmp(pair.mem[0].p + at, pair.mem[1].p + at, len), "%s: wrong bytes", what);
}

static void begin(const char *what)
{
	vu_at(what);
	vu_pair_open(&pair, &spec);
	vu_fill(pair.mem[0].p, MEM, vu.seed);
}

static void end(void)
{
	vu_pair_close(&pair);
}

static void still_works(void)
{
	ibv_wr_start(ex());
	whole_write(4711, IBV_SEND_SIGNALED, 5000, 100000);
	vu_check(!ibv_wr_complete(ex()), "a WRITE afterwards");
	vu_cq_expect_ok(&pair.scq[0], 4711, "a WRITE afterwards");
	check_copied("a WRITE afterwards", 5000, 100000);
}

/* ---- which functions there are ---- */

static void pointers(void)
{
	begin("pointers");
	vu_log("there: write %d imm %d read %d send %d imm %d inv %d cas %d add %d inv %d mw %d "
	       "tso "
	       "%d ud %d xrc %d inline %d list %d sge %d list %d\n",
	       !!ex()->wr_rdma_write, !!ex()->wr_rdma_write_imm, !!ex()->wr_rdma_read,
	       !!ex()->wr_send, !!ex()->wr_send_imm, !!ex()->wr_send_inv, !!ex()->wr_atomic_cmp_swp,
	       !!ex()->wr_atomic_fetch_add, !!ex()->wr_local_inv, !!ex()->wr_bind_mw,
	       !!ex()->wr_send_tso, !!ex()->wr_set_ud_addr, !!ex()->wr_set_xrc_srqn,
	       !!ex()->wr_set_inline_data, !!ex()->wr_set_inline_data_list, !!ex()->wr_set_sge,
	       !!ex()->wr_set_sge_list);
	end();
}

/* Side 0's QP made anew by @attr. */
static void remake(struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;

	attr->comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr->qp_type = IBV_QPT_RC;
	attr->pd = pair.dev[0].pd;
	attr->send_cq = pair.scq[0].cq;
	attr->recv_cq = pair.rcq[0].cq;
	vu_qp_destroy(&pair.qp[0]);
	qp = ibv_create_qp_ex(pair.dev[0].ctx, attr);
	vu_check(qp, "ibv_create_qp_ex: %s", strerror(errno));
	pair.qp[0] = (struct vu_qp){.qp = qp, .ex = ibv_qp_to_qp_ex(qp)};
	vu_check(!vu_qp_to_state(pair.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
	vu_connect(&pair.dev[0], qp, &pair.dev[1], pair.qp[1].qp, &pair.link);
}

/* A builder that the QP was not made for: libmlx5 has it all the same, librxe does not. */
static void out_of_request(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_ex *keep;

	begin("builders out of request");
	remake(&attr);
	keep = ex();
	vu_log("out of request: read %d\n", !!keep->wr_rdma_read);
	if (keep->wr_rdma_read) {
		ibv_wr_start(keep);
		keep->wr_id = 1;
		keep->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_read(keep, pair.mem[1].mr->rkey, (uintptr_t)pair.mem[1].p);
		ibv_wr_set_sge(keep, pair.mem[0].mr->lkey, (uintptr_t)pair.mem[0].p, 10000);
		complete("read out of request");
		log_completions("read out of request", 1);
		check_copied("read out of request", 0, 10000);
	}
	still_works();
	end();
}

/* A QP without SGEs sends inline data all the same. */
static void inline_alone(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_inline_data = 60}};

	begin("inline data alone");
	remake(&attr);
	ibv_wr_start(ex());
	for (size_t i = 0; i < 12; i++) {
		write_wr(i, i == 11 ? IBV_SEND_SIGNALED : 0, 40 * i);
		ibv_wr_set_inline_data(ex(), pair.mem[0].p + 40 * i, 40);
	}
	complete("inline data alone");
	log_completions("inline data alone", 1);
	check_copied("inline data alone", 0, 12 * 40);
	end();
}

/* ---- both ways to post ---- */

static void legacy_between(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	begin("ibv_post_send between batches");
	for (uint64_t i = 0; i < 2; i++) {
		ibv_wr_start(ex());
		whole_write(10 * i + 1, IBV_SEND_SIGNALED, 0, 60000);
		whole_write(10 * i + 2, IBV_SEND_SIGNALED, 60000, 7);
		complete("batch");
		sge = (struct ibv_sge){(uintptr_t)pair.mem[0].p + 70000, 60000,
				       pair.mem[0].mr->lkey};
		wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 10 * i + 3, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, pair.mem[1].p + 70000, pair.mem[1].mr->rkey);
		vu_must_post(pair.qp[0].qp, &wr);
	}
	log_completions("interleaved", 6);
	check_copied("interleaved", 0, 60007);
	check_copied("interleaved", 70000, 60000);
	end();
}

/* ---- batches that are not posted ---- */

static void aborts(void)
{
	begin("abort");
	ibv_wr_start(ex());
	ibv_wr_abort(ex());
	ibv_wr_start(ex());
	whole_write(1, IBV_SEND_SIGNALED, 0, 1000);
	write_wr(2, IBV_SEND_SIGNALED, 1000); /* no setter yet */
	ibv_wr_abort(ex());
	for (int i = 0; i < 3 * DEPTH; i++) {
		ibv_wr_start(ex());
		for (uint64_t k = 0; k < DEPTH; k++)
			whole_write(k, IBV_SEND_SIGNALED, 0, 1000);
		ibv_wr_abort(ex());
	}
	log_completions("aborted", 0);
	vu_check(!pair.mem[1].p[0] && !pair.mem[1].p[999], "an aborted WRITE was executed");
	still_works();
	end();
}

static void empty(void)
{
	begin("empty batch");
	ibv_wr_start(ex());
	complete("empty batch");
	still_works();
	end();
}

static void too_many(void)
{
	unsigned int depth;

	begin("more than the queue");
	depth = pair.qp[0].cap.max_send_wr;
	for (unsigned int n = depth + 1; n <= depth + 60; n += 59) {
		ibv_wr_start(ex());
		for (unsigned int i = 0; i < n; i++)
			whole_write(i, IBV_SEND_SIGNALED, 16 * i, 16);
		complete("more than the queue");
		log_completions("more than the queue", 0);
	}
	vu_check(!pair.mem[1].p[0] && !pair.mem[1].p[1], "a refused WRITE was executed");
	ibv_wr_start(ex());
	for (unsigned int i = 0; i < depth; i++)
		whole_write(i, IBV_SEND_SIGNALED, 16 * i, 16);
	complete("as much as the queue");
	log_completions("as much as the queue", (int)depth);
	still_works();
	end();
}

/* A good WR, and one with data that the provider refuses: nothing of both. */
static void refused(const char *what, void (*set)(struct ibv_qp_ex *))
{
	ibv_wr_start(ex());
	whole_write(1, IBV_SEND_SIGNALED, 0, 16);
	write_wr(2, IBV_SEND_SIGNALED, 16);
	set(ex());
	whole_write(3, IBV_SEND_SIGNALED, 32, 16);
	complete(what);
	log_completions(what, 0);
	vu_check(!pair.mem[1].p[0], "%s: a WR before it was executed", what);
}

static void inline_over(struct ibv_qp_ex *x)
{
	ibv_wr_set_inline_data(x, pair.mem[0].p, pair.qp[0].cap.max_inline_data + 1);
}

static void inline_huge(struct ibv_qp_ex *x)
{
	ibv_wr_set_inline_data(x, pair.mem[0].p, SIZE_MAX / 2);
}

static void inline_list_over(struct ibv_qp_ex *x)
{
	struct ibv_data_buf buf[2] = {{pair.mem[0].p, pair.qp[0].cap.max_inline_data},
				      {pair.mem[0].p, 1}};

	ibv_wr_set_inline_data_list(x, 2, buf);
}

static void list_over(struct ibv_qp_ex *x)
{
	struct ibv_sge sge[65];
	size_t n = pair.qp[0].cap.max_send_sge + 1;

	vu_check(n <= VU_ARRAY(sge), "more than 64 SGEs");
	for (size_t i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)pair.mem[0].p, 16, pair.mem[0].mr->lkey};
	ibv_wr_set_sge_list(x, n, sge);
}

static void refusals(void)
{
	begin("data over the limits");
	refused("inline data over the limit", inline_over);
	refused("far too much inline data", inline_huge);
	refused("an inline list over the limit", inline_list_over);
	refused("too many SGEs", list_over);
	still_works();
	end();
}

static void write_in(const char *what)
{
	ibv_wr_start(ex());
	whole_write(1, 0, 0, 16);
	whole_write(2, IBV_SEND_SIGNALED, 0, 16);
	complete(what);
}

static void reconnect(void)
{
	vu_check(!vu_qp_to_state(pair.qp[0].qp, IBV_QPS_RESET), "modify to RESET");
	vu_check(!vu_qp_to_state(pair.qp[1].qp, IBV_QPS_RESET), "modify to RESET");
	vu_connect(&pair.dev[0], pair.qp[0].qp, &pair.dev[1], pair.qp[1].qp, &pair.link);
}

static void states(void)
{
	struct ibv_qp *qp;
	struct vu_addr peer;

	begin("every state");
	qp = pair.qp[0].qp;
	peer = vu_addr_of(&pair.dev[1], pair.qp[1].qp);
	vu_check(!vu_qp_to_state(qp, IBV_QPS_RESET), "modify to RESET");
	write_in("in RESET");
	vu_qp_to_init(&pair.dev[0], qp);
	write_in("in INIT");
	vu_qp_to_rtr(&pair.dev[0], qp, &peer, &pair.link);
	write_in("in RTR");
	vu_check(!vu_qp_to_state(qp, IBV_QPS_ERR), "modify to ERR");
	log_completions("before ERR", 0);
	write_in("in ERR");
	log_completions("in ERR", 2);
	reconnect();
	still_works();
	vu_check(!vu_qp_to_state(qp, IBV_QPS_ERR), "modify to ERR");
	write_in("in ERR after RTS");
	log_completions("in ERR after RTS", 2);
	reconnect();
	still_works();
	end();
}

/* What the provider makes of a missing setter is its own business, but the same with us. */
static void no_setter(void)
{
	begin("no setter");
	if (!pair.dev[0].is_rxe) {
		ibv_wr_start(ex());
		write_wr(1, IBV_SEND_SIGNALED, 0);
		whole_write(2, IBV_SEND_SIGNALED, 16, 16);
		complete("no setter");
		log_completions("no setter", 1);
	}
	end();
}

/* ---- data ---- */

static void inline_is_copied(void)
{
	uint8_t text[64];
	struct ibv_data_buf list[3] = {{text, 20}, {text + 20, 0}, {text + 20, 40}};

	begin("inline");
	for (int i = 0; i < 2; i++) {
		memcpy(text, pair.mem[0].p, 60);
		ibv_wr_start(ex());
		write_wr(1, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0);
		if (i || pair.dev[0].is_rxe) /* librxe 44 sends nothing of a list */
			ibv_wr_set_inline_data(ex(), text, 60);
		else
			ibv_wr_set_inline_data_list(ex(), 3, list);
		memset(text, 0xee, sizeof(text));
		complete("inline");
		log_completions("inline", 1);
		check_copied("inline", 0, 60);
		memset(pair.mem[1].p, 0, 60);
	}
	end();
}

static void lists(void)
{
	uint8_t *p;
	struct ibv_sge sge[3];

	begin("SGE lists");
	p = pair.mem[0].p;
	for (int i = 0; i < 3; i++) /* equal lengths: librxe 44 counts the first only */
		sge[i] = (struct ibv_sge){(uintptr_t)p + 100000 * (unsigned int)i, 100000,
					  pair.mem[0].mr->lkey};
	ibv_wr_start(ex());
	write_wr(1, IBV_SEND_SIGNALED, 0);
	ibv_wr_set_sge_list(ex(), 3, sge);
	write_wr(2, IBV_SEND_SIGNALED, 0);
	ibv_wr_set_sge_list(ex(), 0, sge);
	write_wr(3, IBV_SEND_SIGNALED, 300000);
	ibv_wr_set_sge(ex(), pair.mem[0].mr->lkey, (uintptr_t)p, 0);
	memset(sge, 0xa5, sizeof(sge));
	complete("SGE lists");
	log_completions("SGE lists", 3);
	check_copied("SGE lists", 0, 300000);
	vu_check(!pair.mem[1].p[300000], "SGE lists: too many bytes");
	end();
}

/* ---- who owns wr_id and wr_flags ---- */

/*
 * The program sets wr_flags once, outside of all regions, and reads both fields back, while another
 * thread polls and so moves what is queued.
 */
static uint64_t polled;
static bool stop;

static void *poll_along(void *arg)
{
	struct ibv_wc wc;
	int n;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		n = ibv_poll_cq(pair.scq[0].cq, 1, &wc);
		vu_check(n >= 0, "ibv_poll_cq: %d", n);
		vu_check(!n || (wc.status == IBV_WC_SUCCESS && wc.wr_id == polled),
			 "completion %" PRIu64 " instead of %" PRIu64 ": %s", wc.wr_id, polled,
			 ibv_wc_status_str(wc.status));
		__atomic_store_n(&polled, polled + (uint64_t)n, __ATOMIC_RELEASE);
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void wait_polled(uint64_t n)
{
	while (__atomic_load_n(&polled, __ATOMIC_ACQUIRE) < n)
		sched_yield();
}

static void fields_stay(void)
{
	pthread_t poller;
	uint64_t n = 300;

	begin("wr_id and wr_flags");
	polled = 0;
	stop = false;
	vu_check(!pthread_create(&poller, NULL, poll_along, NULL), "pthread_create");
	ex()->wr_flags = IBV_SEND_SIGNALED;
	for (uint64_t i = 0; i < n; i++) {
		if (i >= DEPTH)
			wait_polled(i - DEPTH + 1);
		ibv_wr_start(ex());
		ex()->wr_id = i ? ex()->wr_id + 1 : 0;
		ibv_wr_rdma_write(ex(), pair.mem[1].mr->rkey, (uintptr_t)pair.mem[1].p);
		ibv_wr_set_sge(ex(), pair.mem[0].mr->lkey, (uintptr_t)pair.mem[0].p, 20000);
		vu_check(!ibv_wr_complete(ex()), "WR %" PRIu64, i);
	}
	wait_polled(n);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(poller, NULL);
	vu_log("fields afterwards: %" PRIu64 " %u\n", ex()->wr_id, ex()->wr_flags);
	end();
}

/* A program that waits in its region for what it posted before. */
static void poll_inside(void)
{
	begin("polling inside a region");
	ibv_wr_start(ex());
	whole_write(1, IBV_SEND_SIGNALED, 0, HALF);
	complete("polling inside a region");
	ibv_wr_start(ex());
	whole_write(2, IBV_SEND_SIGNALED, HALF, 1000);
	log_completions("polling inside a region", 1);
	complete("polling inside a region");
	log_completions("polling inside a region", 1);
	check_copied("polling inside a region", 0, HALF + 1000);
	end();
}

/* RTS to RTS is a legal modify while others post; libmlx5 sets wr_complete anew there. */
static void *modify_along(void *arg)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 12};

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		vu_check(!ibv_modify_qp(pair.qp[0].qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
			 "modify RTS to RTS");
		vu_sleep(100e-6);
	}
	return NULL;
}

static void modified_while_posting(void)
{
	pthread_t modifier;

	begin("modify while posting");
	stop = false;
	vu_check(!pthread_create(&modifier, NULL, modify_along, NULL), "pthread_create");
	for (uint64_t i = 0; i < 500; i++) {
		ibv_wr_start(ex());
		whole_write(i, IBV_SEND_SIGNALED, 0, 5000);
		vu_check(!ibv_wr_complete(ex()), "WR %" PRIu64, i);
		vu_cq_expect_ok(&pair.scq[0], i, "modify while posting");
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(modifier, NULL);
	end();
}

int main(int argc, char **argv)
{
	vu_parse(argc, argv, "builders", "corners of ibv_wr_*", NULL, 0);
	pointers();
	out_of_request();
	inline_alone();
	legacy_between();
	aborts();
	empty();
	too_many();
	refusals();
	states();
	inline_is_copied();
	lists();
	fields_stay();
	poll_inside();
	modified_while_posting();
	spec.sig_all = true;
	legacy_between();
	no_setter();
	return vu_pass("17 cases");
}
