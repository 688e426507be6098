/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SIMULATION, not a measurement: a model of one port in virtual time, with the real admission
 * code.
 *
 *	bulk process  --take/done-->  scheduler/port.c       latency process
 *	      | chunks                                             | one small packet at a time
 *	      v                                                    v
 *	 NIC: fifo (one queue, as behind tc tbf) or rr (a packet of each QP in turn, as NICs do)
 *	      | port: bytes / rate per packet
 *	      v
 *	 round trip, then the time until the program notices the completion
 *
 * Everything is deterministic: a fixed generator, no clock. Each scenario runs the latency
 * program alone, then beside bulk, and prints ratios to alone; bulk's share is of the port's
 * rate. Exit status: 0 all targets met, 1 not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/atomic.h"
#include "scheduler/port.h"

#define USEC UINT64_C(1000)
#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)
#define MAX_BULK 5
#define MAX_PENDING 4096 /* WRs of one QP in the NIC */
#define MAX_SAMPLES (1U << 21)
#define MAX_EVENTS (1U << 16)
#define LATENCY_QP MAX_BULK

struct scenario {
	const char *name;
	const struct scenario *like;
	double rate;	/* bytes per ns */
	bool fifo;	/* otherwise rr */
	uint32_t burst; /* tbf: bytes that leave at once after a pause; 0: none */
	uint32_t mtu;
	uint64_t rtt;	    /* port to completion */
	uint64_t notice;    /* until a program sees a completion: up to twice that */
	uint64_t stall;	    /* now and then a bulk program is off its CPU for up to that */
	uint64_t message;   /* bytes of each that cannot be cut; 0: chunks */
	bool events;	    /* bulk programs look when something completes, and never else */
	uint64_t slower_at; /* from then on the port has a quarter of the rate; 0: never */
	uint64_t preempt;   /* RNICE_PREEMPT_US, in ns */
	uint64_t think;	    /* latency program: from completion to next post */
	uint64_t arrival;   /* when the latency program starts */
	uint64_t bulk_at;   /* when bulk starts */
	uint64_t warm, end; /* measured between the two */
	unsigned bulk;
	/* targets; 0: none */
	double max_avg, max_p99, min_share, max_added_us, max_worst_us;
	bool no_latency;
};

enum kind { PACKET_OUT, COMPLETION, START, RETRY, LATENCY_POST };

struct event {
	uint64_t at;
	enum kind kind;
	unsigned qp;
	uint64_t bytes;
	uint64_t since;
	uint64_t looked; /* when the program had looked last before it saw this */
};

struct wr {
	uint64_t bytes, left, posted;
};

struct qp {
	struct wr ring[MAX_PENDING];
	unsigned head, count;
};

static struct world {
	const struct scenario *s;
	uint64_t now, rnd;
	struct event heap[MAX_EVENTS];
	unsigned events;
	struct qp qp[MAX_BULK + 1];
	unsigned fifo[MAX_PENDING * (MAX_BULK + 1)], fifo_head, fifo_count, turn;
	bool busy;  /* a packet is on the wire */
	double tat; /* tbf: when its bucket would be full again */
	struct rnice_segment *seg;
	struct rnice_proc *proc[MAX_BULK + 1];
	struct rnice_port *port[MAX_BULK + 1];
	uint64_t *line;
	bool armed[MAX_BULK];
	uint64_t served[MAX_BULK], noticed[MAX_BULK], looked[MAX_BULK + 1];
	uint32_t sample[MAX_SAMPLES];
	unsigned samples;
} w;

static uint64_t draw(uint64_t below)
{
	w.rnd ^= w.rnd << 13;
	w.rnd ^= w.rnd >> 7;
	w.rnd ^= w.rnd << 17;
	return below ? w.rnd % below : 0;
}

static void die(const char *what)
{
	fprintf(stderr, "sim: %s\n", what);
	exit(2);
}

static void push(struct event e)
{
	unsigned i = w.events++;

	if (w.events == MAX_EVENTS)
		die("too many events");
	for (; i && w.heap[(i - 1) / 2].at > e.at; i = (i - 1) / 2)
		w.heap[i] = w.heap[(i - 1) / 2];
	w.heap[i] = e;
}

static struct event pop(void)
{
	struct event top = w.heap[0], last = w.heap[--w.events];
	unsigned i = 0, child;

	while ((child = 2 * i + 1) < w.events) {
		if (child + 1 < w.events && w.heap[child + 1].at < w.heap[child].at)
			child++;
		if (w.heap[child].at >= last.at)
			break;
		w.heap[i] = w.heap[child];
		i = child;
	}
	w.heap[i] = last;
	return top;
}

/* ---- the NIC ---- */
static int next_qp(void)
{
	if (w.s->fifo)
		return w.fifo_count ? (int)w.fifo[w.fifo_head] : -1;
	for (unsigned i = 0; i <= MAX_BULK; i++) {
		w.turn = (w.turn + 1) % (MAX_BULK + 1);
		if (w.qp[w.turn].count)
			return (int)w.turn;
	}
	return -1;
}

/* When a packet of @len is out that starts now. */
static uint64_t out_at(uint64_t len)
{
	double rate = w.s->slower_at && w.now > w.s->slower_at ? w.s->rate / 4 : w.s->rate;
	double now = (double)w.now, at, time = (double)len / rate;

	if (!w.s->burst)
		return w.now + 1 + (uint64_t)time;
	at = w.tat + ((double)len - w.s->burst) / rate;
	at = at > now + USEC ? at : now + USEC;
	w.tat = (w.tat > at ? w.tat : at) + time;
	return (uint64_t)at;
}

static void start_packet(void)
{
	int q = next_qp();
	struct wr *wr;
	uint64_t len;

	if (w.busy || q < 0)
		return;
	wr = &w.qp[q].ring[w.qp[q].head];
	len = wr->left < w.s->mtu ? wr->left : w.s->mtu;
	w.busy = true;
	push((struct event){
		.at = out_at(len), .kind = PACKET_OUT, .qp = (unsigned)q, .bytes = len});
}

static void packet_out(const struct event *e)
{
	struct qp *q = &w.qp[e->qp];
	struct wr *wr = &q->ring[q->head];
	uint64_t late = w.s->rtt + w.s->notice + draw(w.s->notice);

	w.busy = false;
	if (e->qp != LATENCY_QP && w.now >= w.s->warm)
		w.served[e->qp] += e->bytes;
	wr->left -= e->bytes;
	if (!wr->left) {
		if (e->qp != LATENCY_QP && w.s->stall && draw(200) == 0)
			late += draw(w.s->stall);
		/* A QP's completions are noticed in order. */
		if (e->qp != LATENCY_QP && w.now + late < w.noticed[e->qp])
			late = w.noticed[e->qp] - w.now;
		else if (!w.s->events)
			w.looked[e->qp] = w.now + w.s->rtt;
		if (e->qp != LATENCY_QP)
			w.noticed[e->qp] = w.now + late;
		push((struct event){.at = w.now + late,
				    .kind = COMPLETION,
				    .qp = e->qp,
				    .bytes = wr->bytes,
				    .since = wr->posted,
				    .looked = w.looked[e->qp]});
		q->head = (q->head + 1) % MAX_PENDING;
		q->count--;
		if (w.s->fifo) {
			w.fifo_head = (w.fifo_head + 1) % (MAX_PENDING * (MAX_BULK + 1));
			w.fifo_count--;
		}
	}
	start_packet();
}

static void post(unsigned qp, uint64_t bytes)
{
	struct qp *q = &w.qp[qp];

	if (q->count == MAX_PENDING)
		die("a queue of the NIC is full");
	q->ring[(q->head + q->count++) % MAX_PENDING] = (struct wr){bytes, bytes, w.now};
	if (w.s->fifo) {
		unsigned size = MAX_PENDING * (MAX_BULK + 1);

		w.fifo[(w.fifo_head + w.fifo_count++) % size] = qp;
	}
	start_packet();
}

/* ---- the programs ---- */
static void send_bulk(unsigned p)
{
	for (;;) {
		uint64_t bytes = w.s->message ? w.s->message : rnice_port_chunk(w.port[p]);

		if (w.qp[p].count == MAX_PENDING - 1)
			return;
		if (!rnice_port_take(w.port[p], bytes, w.now))
			break;
		post(p, bytes);
	}
	if (!w.armed[p]) {
		w.armed[p] = true;
		push((struct event){.at = w.now + rnice_port_retry_ns(w.port[p], w.now),
				    .kind = RETRY,
				    .qp = p});
	}
}

static void post_latency(void)
{
	bump_relaxed(w.line);
	post(LATENCY_QP, 64);
}

static void completion(const struct event *e)
{
	if (e->qp != LATENCY_QP) {
		if (rnice_port_paced(w.port[e->qp]))
			rnice_port_stayed(w.port[e->qp], e->bytes, e->since, e->looked, w.now);
		rnice_port_done(w.port[e->qp], e->bytes, true, w.now);
		send_bulk(e->qp);
		return;
	}
	if (e->since >= w.s->warm && w.samples < MAX_SAMPLES)
		w.sample[w.samples++] = (uint32_t)(w.now - e->since);
	push((struct event){.at = w.now + w.s->think + draw(w.s->think), .kind = LATENCY_POST});
}

static void handle(const struct event *e)
{
	switch (e->kind) {
	case PACKET_OUT:
		packet_out(e);
		break;
	case COMPLETION:
		completion(e);
		break;
	case START:
		rnice_port_backlog(w.port[e->qp], true, w.now);
		send_bulk(e->qp);
		break;
	case RETRY:
		w.armed[e->qp] = false;
		send_bulk(e->qp);
		break;
	case LATENCY_POST:
		post_latency();
		break;
	}
}

static void join(unsigned i, uint8_t cls)
{
	struct rnice_proc_info info = {
		.cls = cls, .policy = RNICE_POLICY_PREEMPT, .preempt_ns = w.s->preempt};

	if (rnice_proc_join(w.seg, &info, &w.proc[i]) ||
	    rnice_port_attach(w.proc[i], "sim", &w.port[i]))
		die("cannot join");
	rnice_port_set_mtu(w.port[i], w.s->mtu);
}

static void run(const struct scenario *s, unsigned bulk, bool latency)
{
	char why[200] = "", name[64];

	memset(&w, 0, sizeof(w));
	w.s = s;
	w.now = SEC;
	w.rnd = 88172645463325252U;
	snprintf(name, sizeof(name), "/dev/shm/rnice-sim-%u", (unsigned)getpid());
	if (rnice_segment_open(name, true, &w.seg, why, sizeof(why)))
		die(why);
	unlink(name);
	join(LATENCY_QP, RNICE_CLASS_LATENCY);
	w.line = rnice_port_activity_line(w.port[LATENCY_QP]);
	for (unsigned i = 0; i < bulk; i++) {
		join(i, RNICE_CLASS_BULK);
		push((struct event){
			.at = w.now + s->bulk_at + i * 7 * USEC, .kind = START, .qp = i});
	}
	if (latency)
		push((struct event){.at = w.now + s->arrival, .kind = LATENCY_POST});
	while (w.events && w.now < s->end) {
		struct event e = pop();

		w.now = e.at;
		handle(&e);
	}
	for (unsigned i = 0; i <= MAX_BULK; i++)
		rnice_proc_leave(w.proc[i]);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

struct figures {
	double avg, p99, max;
};

static struct figures summary(void)
{
	struct figures f = {0};

	qsort(w.sample, w.samples, sizeof(w.sample[0]), compare);
	for (unsigned i = 0; i < w.samples; i++)
		f.avg += w.sample[i];
	if (w.samples) {
		f.avg /= w.samples;
		f.p99 = w.sample[w.samples - 1 - w.samples / 100];
		f.max = w.sample[w.samples - 1];
	}
	return f;
}

static double share(void)
{
	double bytes = 0;

	for (unsigned i = 0; i < MAX_BULK; i++)
		bytes += (double)w.served[i];
	return bytes / (w.s->rate * (double)(w.now - w.s->warm));
}

static bool check(const char *what, double value, double limit, bool at_most)
{
	bool ok = !limit || (at_most ? value <= limit : value >= limit);

	if (!ok)
		printf("  MISSED: %s %.3f, target %s %.3f\n", what, value,
		       at_most ? "<=" : ">=", limit);
	return ok;
}

/* The least share of a bulk process against the largest. */
static double fairness(void)
{
	uint64_t least = UINT64_MAX, most = 1;

	for (unsigned i = 0; i < w.s->bulk; i++) {
		least = w.served[i] < least ? w.served[i] : least;
		most = w.served[i] > most ? w.served[i] : most;
	}
	return (double)least / (double)most;
}

static void print_row(const struct figures *alone, const struct figures *both)
{
	struct rnice_device_stat d = {.chunk = 1};

	rnice_segment_device(w.seg, 0, &d);
	printf("%-34s", w.s->name);
	if (w.s->no_latency)
		printf("%54s", "");
	else
		printf(" %8.1f -> %8.1f us  avg x%-5.2f p99 x%-5.2f +%-6.1f", alone->avg / 1e3,
		       both->avg / 1e3, both->avg / alone->avg, both->p99 / alone->p99,
		       (both->avg - alone->avg) / 1e3);
	if (w.s->max_worst_us > 0)
		printf(" worst %.1f us", both->max / 1e3);
	printf(" bulk %.3f fair %.3f | %.2f MB/s %llu x %llu\n", share(), fairness(),
	       (double)d.rate / 1e6, (unsigned long long)(d.window / d.chunk),
	       (unsigned long long)d.chunk);
}

static bool check_targets(const struct figures *alone, const struct figures *both)
{
	const struct scenario *s = w.s;
	bool ok = check("bulk share", share(), s->min_share, false);

	if (s->bulk > 1)
		ok &= check("least share / largest", fairness(), 0.9, false);
	if (s->no_latency)
		return ok;
	ok &= check("average latency, times alone", both->avg / alone->avg, s->max_avg, true);
	ok &= check("p99 latency, times alone", both->p99 / alone->p99, s->max_p99, true);
	ok &= check("added latency, us", (both->avg - alone->avg) / 1e3, s->max_added_us, true);
	return check("worst latency, us", both->max / 1e3, s->max_worst_us, true) && ok;
}

static bool simulate(struct scenario s)
{
	struct figures alone, both;
	bool ok;

	s.warm += SEC;
	s.end += SEC;
	run(&s, 0, true);
	alone = summary();
	rnice_segment_close(w.seg);
	run(&s, s.bulk, !s.no_latency);
	both = summary();
	print_row(&alone, &both);
	ok = check_targets(&alone, &both);
	rnice_segment_close(w.seg);
	return ok;
}

#define MBIT 0.000125 /* bytes per ns */
#define GBIT 0.125

/* What the scenarios below are variations of. */
static const struct scenario slow = {.rate = 100 * MBIT,
				     .mtu = 4096,
				     .rtt = 100 * USEC,
				     .notice = 10 * USEC,
				     .preempt = 10 * USEC,
				     .think = 20 * USEC,
				     .warm = 4 * SEC,
				     .end = 30 * SEC};
static const struct scenario fast = {.rate = 100 * GBIT,
				     .mtu = 4096,
				     .rtt = 3 * USEC,
				     .notice = 300,
				     .preempt = 10 * USEC,
				     .think = USEC,
				     .warm = SEC,
				     .end = 2 * SEC};

/* One row reads better than one field per line. */
/* clang-format off */
#define SLOW .like = &slow, .fifo = true
#define FAST .like = &fast
#define ALONE .no_latency = true, .min_share = 0.98

static const struct scenario scenarios[] = {
	/* the testbed: tc tbf lets 16 KiB go at once after a pause */
	{ .name = "100 Mbit/s tbf", SLOW, .burst = 16384, .bulk = 1, .max_avg = 2.5, .min_share = 0.9 },
	{ .name = "100 Mbit/s tbf, stalls", SLOW, .burst = 16384, .stall = 4 * MSEC, .bulk = 1, .max_avg = 2.5, .min_share = 0.88 },
	{ .name = "100 Mbit/s tbf, 3 bulk", SLOW, .burst = 16384, .bulk = 3, .max_avg = 2.5, .min_share = 0.9 },
	/* a packet takes 330 us, and nothing can interrupt it */
	{ .name = "100 Mbit/s", SLOW, .bulk = 1, .max_added_us = 750, .min_share = 0.88 },
	{ .name = "100 Mbit/s tbf, rtt 3 ms", SLOW, .burst = 16384, .rtt = 3 * MSEC, .bulk = 1, .max_added_us = 750, .min_share = 0.9 },
	{ .name = "100 Mbit/s, rtt 3 ms", SLOW, .rtt = 3 * MSEC, .bulk = 1, .max_added_us = 750, .min_share = 0.9 },
	{ .name = "100 Mbit/s tbf, events", SLOW, .burst = 16384, .events = true, .bulk = 1, .max_avg = 2.5, .min_share = 0.9 },
	{ .name = "100 Mbit/s, rtt 3 ms, events", SLOW, .rtt = 3 * MSEC, .events = true, .bulk = 1, .max_added_us = 750, .min_share = 0.9 },
	{ .name = "100 Mbit/s tbf, 512 bytes", SLOW, .burst = 16384, .message = 512, .bulk = 1, .max_added_us = 400, .min_share = 0.9 },
	{ .name = "100 Mbit/s, 512 bytes", SLOW, .message = 512, .bulk = 1, .max_added_us = 400, .min_share = 0.9 },
	{ .name = "100 Mbit/s, 64 KiB uncut", SLOW, .message = 65536, .bulk = 1, .max_added_us = 1500, .min_share = 0.8 },
	{ .name = "100 Mbit/s, then 25", SLOW, .slower_at = 10 * SEC, .bulk = 1, .max_p99 = 60, .max_added_us = 1500, .min_share = 0.35 },
	{ .name = "100 Mbit/s tbf, then 25", SLOW, .burst = 16384, .slower_at = 10 * SEC, .bulk = 1, .max_p99 = 60, .max_added_us = 1500, .min_share = 0.35 },
	{ .name = "1 MB/s, mtu 1024", SLOW, .rate = 0.001, .mtu = 1024, .end = 60 * SEC, .bulk = 1, .max_added_us = 1200, .min_share = 0.6 },
	{ .name = "10 Gb/s fifo", FAST, .rate = 10 * GBIT, .fifo = true, .end = 3 * SEC, .bulk = 1, .max_avg = 2.5, .min_share = 0.9 },
	{ .name = "100 Gb/s fifo", FAST, .fifo = true, .bulk = 1, .max_avg = 2.5, .max_added_us = 10, .min_share = 0.9 },
	{ .name = "100 Gb/s fifo, preempt 4 us", FAST, .fifo = true, .preempt = 4 * USEC, .bulk = 1, .max_avg = 2.5, .min_share = 0.9 },
	{ .name = "100 Gb/s rr", FAST, .bulk = 1, .max_avg = 1.5, .min_share = 0.9 },
	{ .name = "100 Gb/s fifo, 2 bulk", FAST, .fifo = true, .bulk = 2, .max_avg = 2.5, .max_added_us = 10, .min_share = 0.9 },
	{ .name = "100 Gb/s fifo, 5 bulk", FAST, .fifo = true, .bulk = 5, .max_avg = 2.5, .max_added_us = 10, .min_share = 0.9 },
	{ .name = "100 Gb/s fifo, slow to notice", FAST, .fifo = true, .notice = 20 * USEC, .bulk = 1, .max_avg = 2.5, .max_added_us = 25, .min_share = 0.9 },
	{ .name = "400 Gb/s fifo", FAST, .rate = 400 * GBIT, .fifo = true, .bulk = 1, .max_avg = 2.5, .max_added_us = 10, .min_share = 0.9 },
	{ .name = "400 Gb/s rr", FAST, .rate = 400 * GBIT, .bulk = 1, .max_avg = 1.5, .min_share = 0.9 },
	/* bulk alone: native speed */
	{ .name = "100 Mbit/s tbf, bulk alone", SLOW, .burst = 16384, .stall = 4 * MSEC, .bulk = 1, ALONE },
	{ .name = "100 Gb/s, bulk alone", FAST, .fifo = true, .warm = 50 * MSEC, .end = 500 * MSEC, .bulk = 1, ALONE },
	{ .name = "100 Gb/s, bulk alone, rtt 4 ms", FAST, .rtt = 4 * MSEC, .warm = 500 * MSEC, .end = SEC, .bulk = 1, ALONE },
	{ .name = "400 Gb/s, bulk alone", FAST, .rate = 400 * GBIT, .fifo = true, .stall = MSEC, .warm = 50 * MSEC, .end = 300 * MSEC, .bulk = 1, ALONE },
	{ .name = "400 Gb/s, 3 bulk alone", FAST, .rate = 400 * GBIT, .fifo = true, .warm = 50 * MSEC, .end = 300 * MSEC, .bulk = 3, ALONE },
	/* coming and going: the very first message, heartbeats */
	{ .name = "100 Mbit/s tbf, latency arrives", SLOW, .burst = 16384, .arrival = 6 * SEC, .bulk = 1, .max_worst_us = 12000, .min_share = 0.87 },
	{ .name = "100 Mbit/s tbf, bulk starts", SLOW, .burst = 16384, .bulk_at = 200 * MSEC, .warm = 200 * MSEC, .end = 1200 * MSEC, .bulk = 1, .max_avg = 1.5, .max_worst_us = 1500, .min_share = 0.85 },
	{ .name = "100 Mbit/s, bulk starts", SLOW, .bulk_at = 200 * MSEC, .warm = 200 * MSEC, .end = 1200 * MSEC, .bulk = 1, .max_added_us = 750, .max_worst_us = 1500, .min_share = 0.85 },
	{ .name = "100 Gb/s fifo, latency arrives", FAST, .fifo = true, .arrival = 300 * MSEC, .warm = 100 * MSEC, .end = 600 * MSEC, .bulk = 1, .max_worst_us = 10000, .min_share = 0.9 },
	{ .name = "10 Gb/s fifo, first chunk", FAST, .rate = 10 * GBIT, .fifo = true, .bulk_at = MSEC, .warm = USEC, .end = 50 * MSEC, .bulk = 1, .max_worst_us = 20, .min_share = 0.8 },
	{ .name = "10 Gb/s fifo, heartbeat 1 s", FAST, .rate = 10 * GBIT, .fifo = true, .think = 700 * MSEC, .warm = 4 * SEC, .end = 10 * SEC, .bulk = 1, .max_worst_us = 50, .min_share = 0.9 },
};
/* clang-format on */

/* @s with what it does not say taken from what it is like. */
static struct scenario complete(struct scenario s)
{
	const struct scenario *like = s.like;

	s.rate = s.rate > 0 ? s.rate : like->rate;
	s.mtu = s.mtu ? s.mtu : like->mtu;
	s.rtt = s.rtt ? s.rtt : like->rtt;
	s.notice = s.notice ? s.notice : like->notice;
	s.preempt = s.preempt ? s.preempt : like->preempt;
	s.think = s.think ? s.think : like->think;
	s.warm = s.warm ? s.warm : like->warm;
	s.end = s.end ? s.end : like->end;
	return s;
}

int main(int argc, char **argv)
{
	bool ok = true;

	printf("SIMULATION: latency program alone -> beside bulk; chunks x chunk at the end\n");
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (argc < 2 || strstr(scenarios[i].name, argv[1]))
			ok &= simulate(complete(scenarios[i]));
	printf(ok ? "all targets met\n" : "targets missed\n");
	return ok ? 0 : 1;
}
