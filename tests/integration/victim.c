/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * victim: a latency program. One READ or WRITE of a few bytes after the other, each timed from post
 * to completion.
 *
 * SIGUSR1 marks a moment, such as the death of a hog: the program then says how long it took until
 * its latency was back below twice the median of its first seconds (--baseline), and stayed so.
 */
#include "peer_util.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEADY 20 /* samples in a row that must be fast again */

struct sample {
	double when, latency; /* seconds */
};

static uint64_t size = 8, duration = 10, interval_us, baseline_ms = 1000, tos;
static const char *path = "/tmp/rnice-test.sock", *op_name = "read", *samples_file,
		  *api_name = "send", *poll_name = "cq";
static bool event;

static struct sample *sample;
static size_t nsamples, room;
static volatile sig_atomic_t marked;
static double mark;

static void on_mark(int sig)
{
	(void)sig;
	if (!marked)
		mark = vu_now();
	marked = 1;
}

static void note(double when, double latency)
{
	if (nsamples == room) {
		room = room ? 2 * room : 1u << 16;
		sample = realloc(sample, room * sizeof(*sample));
		vu_check(sample, "out of memory");
	}
	sample[nsamples++] = (struct sample){when, latency};
}

static void ping(struct peer_client *c, enum ibv_wr_opcode op)
{
	struct ibv_sge sge = {(uintptr_t)c->mem.p, (uint32_t)size, c->mem.mr->lkey};
	struct ibv_send_wr wr = vu_wr(op, &sge, nsamples, IBV_SEND_SIGNALED);
	struct ibv_wc wc;
	double start = vu_now();

	vu_wr_remote(&wr, (void *)(uintptr_t)c->grant.mem, c->grant.rkey);
	peer_post(c, &wr);
	peer_wait(c, &wc, 1);
	vu_check(wc.wr_id == nsamples, "another WR completed");
	note(start, vu_now() - start);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The latencies of the samples before @end, sorted; the caller frees them. */
static double *sorted(double end, size_t *n)
{
	double *v = vu_alloc(nsamples * sizeof(*v));

	*n = 0;
	for (size_t i = 0; i < nsamples && sample[i].when < end; i++)
		v[(*n)++] = sample[i].latency;
	qsort(v, *n, sizeof(*v), by_value);
	return v;
}

static double percentile_us(const double *v, size_t n, double p)
{
	size_t i = (size_t)(p / 100 * (double)n);

	return n ? v[i < n ? i : n - 1] * 1e6 : 0;
}

/* Seconds from the mark to the first of STEADY fast samples in a row; negative: never. */
static double recovery(double median)
{
	size_t fast = 0;

	for (size_t i = 0; i < nsamples; i++) {
		if (sample[i].when + sample[i].latency < mark)
			continue;
		fast = sample[i].latency < 2 * median ? fast + 1 : 0;
		if (fast == STEADY)
			return sample[i + 1 - STEADY].when + sample[i + 1 - STEADY].latency - mark;
	}
	return -1;
}

static void report_recovery(void)
{
	size_t n;
	double *v = sorted(sample[0].when + (double)baseline_ms / 1000, &n);
	double median = percentile_us(v, n, 50), r = recovery(median / 1e6);

	if (r < 0)
		printf("recovery: never (median of the first %.1f s: %.1f us)\n",
		       (double)baseline_ms / 1000, median);
	else
		printf("recovery: %.0f us after the mark (median before: %.1f us)\n",
		       r > 0 ? r * 1e6 : 0, median);
	free(v);
}

static void write_samples(void)
{
	FILE *f;

	if (!samples_file)
		return;
	f = fopen(samples_file, "we");
	vu_check(f, "%s: %s", samples_file, strerror(errno));
	fprintf(f, "# CLOCK_MONOTONIC in seconds at the post, latency in us\n");
	for (size_t i = 0; i < nsamples; i++)
		fprintf(f, "%.6f %.2f\n", sample[i].when, sample[i].latency * 1e6);
	vu_check(!fclose(f), "%s: %s", samples_file, strerror(errno));
}

int main(int argc, char **argv)
{
	const struct vu_opt opts[] = {
		{"socket", VU_OPT_STR, &path, "unix socket of the server"},
		{"size", VU_OPT_NUM, &size, "bytes"},
		{"op", VU_OPT_STR, &op_name, "read or write"},
		{"duration", VU_OPT_NUM, &duration, "seconds"},
		{"interval", VU_OPT_NUM, &interval_us, "microseconds between two"},
		{"baseline", VU_OPT_NUM, &baseline_ms,
		 "milliseconds from the start that are quiet"},
		{"samples", VU_OPT_STR, &samples_file, "write every sample to this file"},
		{"event", VU_OPT_FLAG, &event, "sleep for completions instead of polling"},
		{"api", VU_OPT_STR, &api_name, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"poll", VU_OPT_STR, &poll_name, "how to poll: cq, ex (ibv_start_poll) or mixed"},
		{"tos", VU_OPT_NUM, &tos, "traffic class of the connection"},
	};
	struct peer_need need;
	enum ibv_wr_opcode op;
	struct peer_client c;
	double end, *v;
	size_t n;

	vu.timeout = 600;
	vu_parse(argc, argv, "victim", "a latency program", opts, VU_ARRAY(opts));
	op = strcmp(op_name, "write") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	need = (struct peer_need){.socket = path,
				  .bytes = size < 4096 ? 4096 : size,
				  .depth = 4,
				  .traffic_class = (uint8_t)tos,
				  .event = event,
				  .api = api_name,
				  .poll = poll_name};
	peer_connect(&c, &need);
	peer_stop_on_sigterm();
	signal(SIGUSR1, on_mark);
	vu_at("pinging");
	for (end = vu_now() + (double)duration; vu_now() < end && !peer_stop;) {
		ping(&c, op);
		if (interval_us)
			vu_sleep((double)interval_us * 1e-6);
	}
	peer_close(&c);
	write_samples();
	if (marked)
		report_recovery();
	v = sorted(end, &n);
	vu_pass("%zu samples, p50 %.1f p99 %.1f p99.9 %.1f max %.1f us", n, percentile_us(v, n, 50),
		percentile_us(v, n, 99), percentile_us(v, n, 99.9), percentile_us(v, n, 100));
	free(v);
	free(sample);
	return 0;
}
