/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress: posted work goes on while the program is busy elsewhere, and costs nothing once done.
 *
 * A measured run says how long the bytes take when the program polls all the time. Then the same
 * bytes are posted, the program computes (or sleeps) for a few times as long without any verbs call
 * (computing takes a processor away from soft RoCE), and the first poll after it must find
 * everything complete.
 */
#include "verbs_util.h"

#include <inttypes.h>
#include <string.h>

static uint64_t bytes = 64u << 20, wr_size = 8u << 20;
static uint64_t seconds = 2, factor = 4, grace_ms = 250, idle_percent = 2;
static const char *phase = "compute", *op_name = "write";

static void post_all(struct vu_pair *p, enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t n = bytes / wr_size;

	for (uint64_t i = 0; i < n; i++) {
		sge = (struct ibv_sge){(uintptr_t)p->mem[0].p + i * wr_size, (uint32_t)wr_size,
				       p->mem[0].mr->lkey};
		wr = vu_wr(op, &sge, i, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, p->mem[1].p + i * wr_size, p->mem[1].mr->rkey);
		vu_must_post(p->qp[0].qp, &wr);
	}
}

/* Poll until all @n are there; the first wr_id expected is @next. */
static void poll_all(struct vu_pair *p, uint64_t next, uint64_t n)
{
	struct ibv_wc wc[16];
	int k;

	while (next < n) {
		k = ibv_poll_cq(p->scq[0].cq, 16, wc);
		vu_check(k >= 0, "ibv_poll_cq: %d", k);
		for (int i = 0; i < k; i++, next++)
			vu_check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == next,
				 "WR %" PRIu64 ": %s, wr_id %" PRIu64, next,
				 ibv_wc_status_str(wc[i].status), wc[i].wr_id);
	}
}

/* Until the CQ says that it is empty; the number of entries. */
static uint64_t poll_round(struct vu_pair *p)
{
	struct ibv_wc wc[16];
	uint64_t n = 0;
	int k;

	while ((k = ibv_poll_cq(p->scq[0].cq, 16, wc)) > 0)
		for (int i = 0; i < k; i++, n++)
			vu_check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == n,
				 "WR %" PRIu64 ": %s, wr_id %" PRIu64, n,
				 ibv_wc_status_str(wc[i].status), wc[i].wr_id);
	return n;
}

static void compute(double duration)
{
	double end = vu_now() + duration;
	volatile uint64_t x = 1;

	while (vu_now() < end)
		for (int i = 0; i < 1000; i++)
			x = x * 6364136223846793005u + 1;
}

static double measured(struct vu_pair *p, enum ibv_wr_opcode op)
{
	double start = vu_now();

	vu_at("measuring with polling");
	post_all(p, op);
	poll_all(p, 0, bytes / wr_size);
	return vu_now() - start;
}

static void verify(const struct vu_pair *p)
{
	vu_check(!memcmp(p->mem[0].p, p->mem[1].p, bytes), "wrong bytes");
}

static double unattended(struct vu_pair *p, enum ibv_wr_opcode op, double duration)
{
	uint64_t n = bytes / wr_size, done;
	double start;

	vu_at("working unattended");
	vu_fill(p->mem[op == IBV_WR_RDMA_READ].p, bytes, 99);
	post_all(p, op);
	if (!strcmp(phase, "compute"))
		compute(duration);
	else
		vu_sleep(duration);
	vu_at("polling after the phase");
	start = vu_now();
	done = poll_round(p);
	poll_all(p, done, n);
	verify(p);
	vu_note("%" PRIu64 " of %" PRIu64 " complete at the first look\n", done, n);
	return done == n ? 0 : vu_now() - start;
}

static double idle(void)
{
	double cpu, t;

	vu_at("idle");
	vu_sleep(0.2); /* what is still winding down */
	cpu = vu_cpu_time();
	t = vu_now();
	vu_sleep(2);
	return 100 * (vu_cpu_time() - cpu) / (vu_now() - t);
}

int main(int argc, char **argv)
{
	const struct vu_opt opts[] = {
		{"bytes", VU_OPT_NUM, &bytes, "how much to post"},
		{"wr-size", VU_OPT_NUM, &wr_size, "bytes of one WR; must divide --bytes"},
		{"op", VU_OPT_STR, &op_name, "write or read"},
		{"phase", VU_OPT_STR, &phase, "compute or sleep"},
		{"factor", VU_OPT_NUM, &factor,
		 "length of the phase, in measured times of the same work with polling"},
		{"seconds", VU_OPT_NUM, &seconds, "but at least so long"},
		{"grace-ms", VU_OPT_NUM, &grace_ms, "how much later completions may come"},
		{"idle-percent", VU_OPT_NUM, &idle_percent, "allowed CPU time when all is done"},
	};
	struct vu_pair_spec spec = {.recv_wr = 1, .sge = 1};
	enum ibv_wr_opcode op;
	double took, late, cpu, duration;
	struct vu_pair p;

	vu.timeout = 120;
	vu_parse(argc, argv, "progress", "work goes on while the program does not look", opts,
		 VU_ARRAY(opts));
	vu_check(wr_size && bytes % wr_size == 0, "--wr-size must divide --bytes");
	vu_check(bytes / wr_size <= 4096, "more than 4096 WRs");
	op = strcmp(op_name, "read") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	spec.mem = bytes;
	spec.send_wr = (unsigned int)(bytes / wr_size);
	vu_pair_open(&p, &spec);
	took = measured(&p, op);
	duration = (double)factor * took;
	duration = duration > (double)seconds ? duration : (double)seconds;
	late = unattended(&p, op, duration);
	cpu = idle();
	vu_check(late * 1000 <= (double)grace_ms,
		 "not complete after %.1f s: %.0f ms more needed (polling: %.0f ms)", duration,
		 late * 1000, took * 1000);
	vu_check(cpu < (double)idle_percent, "%.1f %% CPU while idle", cpu);
	vu_pair_close(&p);
	return vu_pass("%.0f ms when polled, %.1f ms after %.1f s of %s, idle CPU %.2f %%",
		       took * 1000, late * 1000, duration, phase, cpu);
}
