/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program that bench/overhead runs with and without librnice.so on nullverbs. It uses verbs as
 * any program does (inline calls, checked results) and prints one line per sample:
 *
 *	sample <elapsed ns> <operations> <work requests the NIC got, 0 = not counted>
 *
 * Modes (null0 and null1: nullverbs.h):
 *	pair    post one signaled WR, poll its completion            null0
 *	locked  the same                                             null1
 *	post    post one unsignaled WR                               null0
 *	empty   poll a CQ that has nothing                           null0
 *	stream  keep -d WRs outstanding, poll in batches             null1
 *	idle    send a little, then sleep until killed; no samples   null1
 */
#include "bench/nullverbs.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 16 };

struct setup {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	bool counts; /* nullverbs_posted() works */
};

struct options {
	uint64_t iterations, samples, warmup;
	uint32_t bytes, depth;
	int cpu; /* -1: not pinned */
};

struct mode {
	const char *name;
	const char *device;
	void (*run)(const struct setup *s, const struct options *o, uint64_t iterations);
};

static void die(const char *what)
{
	fprintf(stderr, "overhead_probe: %s: %s\n", what, strerror(errno));
	exit(2);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the measured loops ---- */

static struct ibv_send_wr write_wr(const struct setup *s, struct ibv_sge *sge, uint32_t bytes,
				   unsigned int flags)
{
	*sge = (struct ibv_sge){
		.addr = (uintptr_t)s->mr->addr,
		.length = bytes,
		.lkey = s->mr->lkey,
	};
	return (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.wr.rdma = {.remote_addr = (uintptr_t)s->mr->addr, .rkey = s->mr->rkey},
	};
}

static void check_wc(const struct ibv_wc *wc, uint64_t wr_id)
{
	if (wc->status == IBV_WC_SUCCESS && wc->wr_id == wr_id)
		return;
	fprintf(stderr,
		"overhead_probe: completion of %" PRIu64 " (status %d) instead of %" PRIu64 "\n",
		wc->wr_id, wc->status, wr_id);
	exit(2);
}

static void run_pair(const struct setup *s, const struct options *o, uint64_t iterations)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(s, &sge, o->bytes, IBV_SEND_SIGNALED);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	for (uint64_t i = 0; i < iterations; i++) {
		wr.wr_id = i;
		if (ibv_post_send(s->qp, &wr, &bad))
			die("ibv_post_send");
		do
			n = ibv_poll_cq(s->cq, 1, &wc);
		while (n == 0);
		if (n < 0)
			die("ibv_poll_cq");
		check_wc(&wc, i);
	}
}

static void run_post(const struct setup *s, const struct options *o, uint64_t iterations)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(s, &sge, o->bytes, 0);
	struct ibv_send_wr *bad;

	for (uint64_t i = 0; i < iterations; i++) {
		wr.wr_id = i;
		if (ibv_post_send(s->qp, &wr, &bad))
			die("ibv_post_send");
	}
}

static void run_empty(const struct setup *s, const struct options *o, uint64_t iterations)
{
	struct ibv_wc wc;

	(void)o;
	for (uint64_t i = 0; i < iterations; i++)
		if (ibv_poll_cq(s->cq, 1, &wc))
			die("ibv_poll_cq: an empty CQ is not empty");
}

static void run_stream(const struct setup *s, const struct options *o, uint64_t iterations)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(s, &sge, o->bytes, IBV_SEND_SIGNALED);
	struct ibv_send_wr *bad;
	struct ibv_wc wc[BATCH];
	uint64_t posted = 0, done = 0;

	while (done < iterations) {
		int n;

		for (; posted < iterations && posted - done < o->depth; posted++) {
			wr.wr_id = posted;
			if (ibv_post_send(s->qp, &wr, &bad))
				die("ibv_post_send");
		}
		n = ibv_poll_cq(s->cq, BATCH, wc);
		if (n < 0)
			die("ibv_poll_cq");
		for (int i = 0; i < n; i++)
			check_wc(&wc[i], done++);
	}
}

static void run_idle(const struct setup *s, const struct options *o, uint64_t iterations)
{
	run_stream(s, o, iterations < 1000 ? iterations : 1000);
	puts("idle");
	fflush(stdout);
	for (;;)
		pause();
}

static const struct mode modes[] = {
	{"pair", "null0", run_pair},   {"locked", "null1", run_pair},	{"post", "null0", run_post},
	{"empty", "null0", run_empty}, {"stream", "null1", run_stream}, {"idle", "null1", run_idle},
};

/* ---- around them ---- */

static void open_device(struct setup *s, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		die("ibv_get_device_list");
	for (int i = 0; list[i] && !s->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			s->ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!s->ctx)
		die("no null device: is LD_LIBRARY_PATH set to nullverbs?");
	s->counts = !strcmp(name, "null1");
}

static void connect_qp(struct ibv_qp *qp)
{
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qp->qp_num,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	if (ibv_modify_qp(qp, &attr, init))
		die("ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, rtr))
		die("ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, rts))
		die("ibv_modify_qp to RTS");
}

static void set_up(struct setup *s, const struct options *o, const char *device)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = o->depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	void *buf = malloc(o->bytes);

	if (!buf)
		die("malloc");
	open_device(s, device);
	s->pd = ibv_alloc_pd(s->ctx);
	if (!s->pd)
		die("ibv_alloc_pd");
	s->mr = ibv_reg_mr(s->pd, buf, o->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->cq = ibv_create_cq(s->ctx, (int)o->depth, NULL, NULL, 0);
	if (!s->mr || !s->cq)
		die("ibv_reg_mr or ibv_create_cq");
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		die("ibv_create_qp");
	connect_qp(s->qp);
}

static void tear_down(struct setup *s)
{
	void *buf = s->mr->addr;

	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->cq);
	ibv_dereg_mr(s->mr);
	ibv_dealloc_pd(s->pd);
	ibv_close_device(s->ctx);
	free(buf);
}

static uint64_t posted(const struct setup *s)
{
	return s->counts ? nullverbs_posted(s->qp) : 0;
}

static void measure(const struct mode *mode, const struct setup *s, const struct options *o)
{
	mode->run(s, o, o->warmup);
	for (uint64_t i = 0; i < o->samples; i++) {
		uint64_t wrs = posted(s);
		uint64_t start = now_ns();

		mode->run(s, o, o->iterations);
		printf("sample %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", now_ns() - start,
		       o->iterations, posted(s) - wrs);
	}
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static uint64_t number(const char *text, uint64_t max)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || end == text || value > max) {
		errno = EINVAL;
		die(text);
	}
	return value;
}

static void usage(FILE *out)
{
	fputs("usage: overhead_probe pair|locked|post|empty|stream|idle [-n iterations] [-s "
	      "samples]\n"
	      "       [-w warm-up iterations] [-b bytes] [-d depth] [-c cpu]\n",
	      out);
}

static const struct mode *parse(int argc, char **argv, struct options *o)
{
	const struct mode *mode = NULL;
	int opt;

	while ((opt = getopt(argc, argv, "n:s:w:b:d:c:h")) != -1) {
		switch (opt) {
		case 'n':
			o->iterations = number(optarg, UINT64_MAX);
			break;
		case 's':
			o->samples = number(optarg, 1000000);
			break;
		case 'w':
			o->warmup = number(optarg, UINT64_MAX);
			break;
		case 'b':
			o->bytes = (uint32_t)number(optarg, 1u << 30);
			break;
		case 'd':
			o->depth = (uint32_t)number(optarg, 4096);
			break;
		case 'c':
			o->cpu = (int)number(optarg, CPU_SETSIZE - 1);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	for (size_t i = 0; optind == argc - 1 && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(argv[optind], modes[i].name))
			mode = &modes[i];
	return mode;
}

int main(int argc, char **argv)
{
	struct options o = {
		.iterations = 1000000,
		.samples = 5,
		.warmup = 100000,
		.bytes = 64,
		.depth = 16,
		.cpu = -1,
	};
	const struct mode *mode = parse(argc, argv, &o);
	struct setup s = {0};

	if (!mode || !o.depth || !o.bytes) {
		usage(stderr);
		return 2;
	}
	if (o.cpu >= 0)
		pin(o.cpu);
	set_up(&s, &o, mode->device);
	measure(mode, &s, &o);
	tear_down(&s);
	return 0;
}
