/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events: completion channels in all the ways programs use them. No lost wake-up, no event without
 * a completion behind it, the right CQ and context with each, and events acknowledged late, in one
 * go, or after the last use.
 */
#include "events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 16
#define BIG (1u << 20)

static uint64_t rounds = 200;
static struct vu_rng rng, poll_rng;
static enum vu_poll how;
static struct ibv_comp_channel *channel[2];
static struct vu_pair pair;
static uint64_t spurious, events;
static uint64_t polled; /* found at once after arming: an event may come for it, too late */
static uint64_t serial; /* wr_id of the next WR */

/* ---- the pair, with a channel for each send CQ ---- */

static void open_channels(void)
{
	struct vu_pair_spec spec = {.mem = 2 * BIG,
				    .send_wr = DEPTH,
				    .recv_wr = DEPTH,
				    .cqe = 4 * DEPTH,
				    .channel = channel};

	/* channels belong to a context, so the pair's devices are opened here first */
	memset(&pair, 0, sizeof(pair));
	vu_dev_open_pair(pair.dev);
	for (int i = 0; i < 2; i++) {
		channel[i] = ibv_create_comp_channel(pair.dev[i].ctx);
		vu_check(channel[i], "ibv_create_comp_channel: %s", strerror(errno));
		vu_mem_alloc(&pair.mem[i], &pair.dev[i], spec.mem, VU_ACCESS);
		/* the receive CQs, too, are on the channels: two CQs on one */
		vu_cq_create(&pair.scq[i], &pair.dev[i], spec.cqe, channel[i], how, &pair.scq[i]);
		vu_cq_create(&pair.rcq[i], &pair.dev[i], spec.cqe, channel[i], how, &pair.rcq[i]);
	}
}

static void open_pair(void)
{
	struct vu_pair_spec spec = {.send_wr = DEPTH, .recv_wr = DEPTH};

	open_channels();
	vu_pair_make_qps(&pair, &spec);
}

static void close_pair(void)
{
	struct ibv_comp_channel *ch[2] = {channel[0], channel[1]};

	for (int i = 0; i < 2; i++) {
		vu_check(ibv_destroy_comp_channel(ch[i]) == EBUSY,
			 "a channel with CQs could be destroyed");
		vu_qp_destroy(&pair.qp[i]);
		vu_cq_destroy(&pair.scq[i]);
		vu_cq_destroy(&pair.rcq[i]);
		vu_check(!ibv_destroy_comp_channel(ch[i]), "ibv_destroy_comp_channel: %s",
			 strerror(errno));
		vu_mem_free(&pair.mem[i]);
		vu_dev_close(&pair.dev[i]);
	}
}

/* ---- small steps ---- */

static void arm(struct vu_cq *c, int solicited)
{
	int err = ibv_req_notify_cq(c->cq, solicited);

	vu_check(!err, "ibv_req_notify_cq: %s", strerror(err));
}

static uint32_t draw_len(void)
{
	return (uint32_t)(vu_chance(&rng, 8) ? BIG : vu_range(&rng, 1, 8000));
}

static void post_write(uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, len, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, serial++, IBV_SEND_SIGNALED);

	vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
	vu_must_post(pair.qp[0].qp, &wr);
}

static void post_send(uint32_t len, unsigned int flags)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[0].p, len, pair.mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_SEND, &sge, serial++, IBV_SEND_SIGNALED | flags);

	vu_must_post(pair.qp[0].qp, &wr);
}

static void post_recv(void)
{
	struct ibv_sge sge = {(uintptr_t)pair.mem[1].p, BIG, pair.mem[1].mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	vu_must_recv(pair.qp[1].qp, &wr);
}

/* What is in the CQ now; the wr_ids must go on from *next if that is given. */
static int drain(struct vu_cq *c, uint64_t *next)
{
	struct ibv_wc wc;
	int n = 0, k;

	while ((k = vu_cq_poll(c, 1, &wc, vu_poll_ex(how, &poll_rng))) == 1) {
		vu_check(wc.status == IBV_WC_SUCCESS, "completion: %s",
			 ibv_wc_status_str(wc.status));
		if (next)
			vu_check(wc.wr_id == (*next)++, "wr_id %" PRIu64 " instead of %" PRIu64,
				 wc.wr_id, *next - 1);
		n++;
	}
	vu_check(!k, "polling: %d", k);
	return n;
}

/* Get the event that must be there, without acknowledging it. */
static struct vu_cq *take(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	struct vu_cq *c;

	vu_check(!ibv_get_cq_event(ch, &cq, &context), "ibv_get_cq_event: %s", strerror(errno));
	c = context;
	vu_check(c && c->cq == cq && cq->cq_context == context,
		 "event with the wrong CQ or context");
	c->unacked++;
	events++;
	return c;
}

static void ack(struct vu_cq *c)
{
	ibv_ack_cq_events(c->cq, c->unacked);
	c->unacked = 0;
}

static void set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	vu_check(flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK), "fcntl: %s",
		 strerror(errno));
	vu_check(fcntl(fd, F_GETFL) & O_NONBLOCK, "O_NONBLOCK did not stick");
}

/* ---- the usual loop, with each way to wait ---- */

/* All events there are, as an edge-triggered program must; blocking channels: one. */
static int take_all(const struct waiter *w)
{
	struct ibv_cq *cq;
	void *context;
	int n = 0;

	if (!w->nonblocking) {
		ack(take(channel[0]));
		return 1;
	}
	while (!ibv_get_cq_event(channel[0], &cq, &context)) {
		vu_check(cq == pair.scq[0].cq && context == &pair.scq[0],
			 "event with the wrong CQ or context");
		pair.scq[0].unacked++;
		events++;
		n++;
	}
	vu_check(errno == EAGAIN || errno == EWOULDBLOCK, "ibv_get_cq_event: %s", strerror(errno));
	if (pair.scq[0].unacked)
		ack(&pair.scq[0]);
	return n;
}

/* The usual loop: arm, look, sleep, take the event. Some WRs per round, small and large. */
static void mixed_round(const struct waiter *w, uint64_t *next)
{
	unsigned int left = (unsigned int)vu_range(&rng, 1, 6);
	int n;

	for (unsigned int i = 0; i < left; i++)
		post_write(draw_len());
	while (left) {
		arm(&pair.scq[0], 0);
		n = drain(&pair.scq[0], next);
		left -= (unsigned int)n;
		polled += n > 0;
		if (n || !left)
			continue;
		w->wait(channel[0]->fd);
		take_all(w);
		n = drain(&pair.scq[0], next);
		left -= (unsigned int)n;
		spurious += !n;
	}
}

static void use_waiter(const struct waiter *w)
{
	uint64_t next;

	vu_at(w->name);
	open_pair();
	next = serial;
	if (w->nonblocking)
		set_nonblocking(channel[0]->fd);
	w->open(channel[0]->fd);
	spurious = polled = events = 0;
	for (uint64_t i = 0; i < rounds; i++)
		mixed_round(w, &next);
	w->close();
	vu_note("%s: %" PRIu64 " events, %" PRIu64 " of them late\n", w->name, events, spurious);
	vu_check(spurious <= polled,
		 "%s: %" PRIu64 " events without a completion, %" PRIu64 " polled after arming",
		 w->name, spurious, polled);
	vu_log("%s: ok\n", w->name);
	close_pair();
}

/* ---- strict: one WR, one event, one completion, and then silence ---- */

static void case_strict(void)
{
	uint64_t next = serial;

	open_pair();
	for (uint64_t i = 0; i < rounds; i++) {
		arm(&pair.scq[0], 0);
		post_write(draw_len());
		vu_check(readable(channel[0]->fd, WAIT_MS), "no event for a completion");
		vu_check(take(channel[0]) == &pair.scq[0], "event of another CQ");
		vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
		vu_check(!readable(channel[0]->fd, 0), "more events than completions");
		ack(&pair.scq[0]);
	}
	close_pair();
}

/* Unsignaled WRs and an unarmed CQ must not wake anybody. */
static void case_quiet(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint64_t next;

	open_pair();
	arm(&pair.scq[0], 0);
	sge = (struct ibv_sge){(uintptr_t)pair.mem[0].p, BIG, pair.mem[0].mr->lkey};
	for (int i = 0; i < 4; i++) {
		wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 1, 0);
		vu_wr_remote(&wr, pair.mem[1].p, pair.mem[1].mr->rkey);
		vu_must_post(pair.qp[0].qp, &wr);
	}
	vu_check(!readable(channel[0]->fd, 700), "an event for unsignaled WRs");
	next = serial;
	post_write(10);
	vu_check(readable(channel[0]->fd, WAIT_MS), "no event");
	ack(take(channel[0]));
	vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	post_write(BIG); /* not armed */
	vu_check(!readable(channel[0]->fd, 300), "an event of a CQ that was not armed");
	vu_cq_expect_ok(&pair.scq[0], next, "the last WRITE"); /* tiny chunks may take longer */
	vu_check(!readable(channel[0]->fd, 0), "an event of a CQ that was not armed");
	close_pair();
}

/* ---- receiving, solicited events only ---- */

static void case_solicited(void)
{
	open_pair();
	for (uint64_t i = 0; i < rounds / 10 + 1; i++) {
		post_recv();
		post_recv();
		arm(&pair.rcq[1], 1);
		post_send(draw_len(), 0);
		vu_check(!readable(channel[1]->fd, 100), "an event for an unsolicited message");
		post_send(draw_len(), IBV_SEND_SOLICITED);
		vu_check(readable(channel[1]->fd, WAIT_MS), "no event for a solicited message");
		vu_check(take(channel[1]) == &pair.rcq[1], "event of another CQ");
		vu_check(drain(&pair.rcq[1], NULL) == 2, "not two messages");
		ack(&pair.rcq[1]);
		vu_check(vu_cq_collect(&pair.scq[0], 2, (struct ibv_wc[2]){{0}}, 20) == 2,
			 "not two completions");
	}
	close_pair();
}

/* ---- two CQs on one channel ---- */

static void case_two_cqs(void)
{
	struct vu_cq *c;
	int sends = 0, recvs = 0;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	open_pair();
	for (uint64_t i = 0; i < rounds / 4 + 1; i++) {
		post_recv();
		arm(&pair.scq[1], 0);
		arm(&pair.rcq[1], 0);
		post_send(draw_len(), 0); /* from 0: received by 1 */
		sge = (struct ibv_sge){(uintptr_t)pair.mem[1].p + BIG, draw_len(),
				       pair.mem[1].mr->lkey};
		wr = vu_wr(IBV_WR_RDMA_READ, &sge, 5, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, pair.mem[0].p + BIG, pair.mem[0].mr->rkey);
		vu_must_post(pair.qp[1].qp, &wr); /* from 1: completes there */
		for (int k = 0; k < 2; k++) {
			vu_check(readable(channel[1]->fd, WAIT_MS), "event %d of 2 is missing", k);
			c = take(channel[1]);
			vu_check(drain(c, NULL) == 1, "an event without a completion");
			sends += c == &pair.scq[1];
			recvs += c == &pair.rcq[1];
		}
		vu_cq_expect_ok(&pair.scq[0], serial - 1, "the SEND");
	}
	vu_check(sends == recvs, "%d send events, %d receive events", sends, recvs);
	ack(&pair.scq[1]);
	ack(&pair.rcq[1]);
	close_pair();
}

/* ---- order of set-up and tear-down ---- */

/* Armed while there was no QP yet. */
static void case_arm_before_qp(void)
{
	struct vu_pair_spec spec = {.send_wr = DEPTH, .recv_wr = DEPTH};
	uint64_t next;

	open_channels();
	arm(&pair.scq[0], 0);
	arm(&pair.rcq[1], 0);
	vu_pair_make_qps(&pair, &spec);
	post_recv();
	next = serial;
	post_send(BIG, 0);
	vu_check(readable(channel[1]->fd, WAIT_MS), "no receive event");
	vu_check(take(channel[1]) == &pair.rcq[1], "event of another CQ");
	vu_check(readable(channel[0]->fd, WAIT_MS), "no send event");
	ack(take(channel[0]));
	vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	vu_check(drain(&pair.rcq[1], NULL) == 1, "an event without a message");
	close_pair(); /* acknowledges the receive event */
}

/* Events acknowledged late, many at once, and none at all. */
static void case_late_ack(void)
{
	uint64_t next = serial;

	open_pair();
	for (int i = 0; i < 50; i++) {
		arm(&pair.scq[0], 0);
		post_write(draw_len());
		vu_check(take(channel[0]) == &pair.scq[0], "event of another CQ");
		vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	}
	ibv_ack_cq_events(pair.scq[0].cq, 20);
	ibv_ack_cq_events(pair.scq[0].cq, 0);
	pair.scq[0].unacked -= 20;
	close_pair(); /* acknowledges 30; ibv_destroy_cq would wait for ever for a missing one */
}

/* An event that nobody took dies with its CQ. */
static void case_event_left(void)
{
	struct ibv_comp_channel *ch;
	uint64_t next;

	open_pair();
	next = serial;
	arm(&pair.scq[0], 0);
	post_write(BIG);
	vu_check(readable(channel[0]->fd, WAIT_MS), "no event");
	vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	vu_qp_destroy(&pair.qp[0]);
	vu_cq_destroy(&pair.scq[0]);
	vu_check(!readable(channel[0]->fd, 0), "an event of a CQ that is gone");
	/* the rest as usual */
	ch = channel[0];
	vu_cq_destroy(&pair.rcq[0]);
	vu_check(!ibv_destroy_comp_channel(ch), "ibv_destroy_comp_channel: %s", strerror(errno));
	vu_mem_free(&pair.mem[0]);
	vu_dev_close(&pair.dev[0]);
	vu_qp_destroy(&pair.qp[1]);
	vu_cq_destroy(&pair.scq[1]);
	vu_cq_destroy(&pair.rcq[1]);
	vu_check(!ibv_destroy_comp_channel(channel[1]), "ibv_destroy_comp_channel");
	vu_mem_free(&pair.mem[1]);
	vu_dev_close(&pair.dev[1]);
}

/* A duplicate of the fd and a switch to O_NONBLOCK and back. */
static void case_fd_games(void)
{
	struct ibv_cq *cq;
	void *context;
	uint64_t next;
	int copy, flags;

	open_pair();
	next = serial;
	copy = dup(channel[0]->fd);
	vu_check(copy >= 0, "dup: %s", strerror(errno));
	set_nonblocking(channel[0]->fd);
	errno = 0;
	vu_check(ibv_get_cq_event(channel[0], &cq, &context) && errno == EAGAIN,
		 "no event: %s instead of EAGAIN", strerror(errno));
	arm(&pair.scq[0], 0);
	post_write(BIG);
	vu_check(readable(copy, WAIT_MS), "no event on a duplicate");
	ack(take(channel[0]));
	vu_check(!readable(copy, 0), "an event too many on a duplicate");
	vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	flags = fcntl(channel[0]->fd, F_GETFL);
	vu_check(!fcntl(channel[0]->fd, F_SETFL, flags & ~O_NONBLOCK), "fcntl");
	arm(&pair.scq[0], 0);
	post_write(BIG);
	ack(take(channel[0])); /* blocks again */
	vu_check(drain(&pair.scq[0], &next) == 1, "an event without a completion");
	close(copy);
	close_pair();
}

/* ---- somebody sleeps in ibv_get_cq_event while the poster does something else ---- */

static void *sleeper(void *arg)
{
	uint64_t *done = arg, next = *done;

	for (uint64_t i = 0; i < rounds / 4 + 1;) {
		ack(take(channel[0]));
		arm(&pair.scq[0], 0);
		i += (uint64_t)drain(&pair.scq[0], &next);
		__atomic_store_n(done, next, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void case_sleeper(void)
{
	uint64_t done = serial;
	pthread_t t;

	open_pair();
	arm(&pair.scq[0], 0);
	vu_check(!pthread_create(&t, NULL, sleeper, &done), "pthread_create");
	for (uint64_t i = 0; i < rounds / 4 + 1; i++) {
		post_write(draw_len());
		vu_sleep(0.002); /* no verbs call in here */
		while (serial - __atomic_load_n(&done, __ATOMIC_RELAXED) > DEPTH / 2)
			vu_sleep(0.001);
	}
	pthread_join(t, NULL);
	close_pair();
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"strict", case_strict},       {"quiet", case_quiet},
	{"solicited", case_solicited}, {"two-cqs", case_two_cqs},
	{"late-ack", case_late_ack},   {"arm-before-qp", case_arm_before_qp},
	{"fd-games", case_fd_games},   {"event-left", case_event_left},
	{"sleeper", case_sleeper},
};

static bool wanted(const char *only, const char *name)
{
	return !only || !strcmp(only, name);
}

int main(int argc, char **argv)
{
	const char *only = NULL, *poll_name = "cq";
	const struct vu_opt opts[] = {
		{"rounds", VU_OPT_NUM, &rounds, "rounds of each case"},
		{"case", VU_OPT_STR, &only, "run this case only"},
		{"poll", VU_OPT_STR, &poll_name, "how to poll: cq, ex (ibv_start_poll) or mixed"},
	};
	int n = 0;

	vu.timeout = 120;
	vu_parse(argc, argv, "events", "completion channels and notifications", opts,
		 VU_ARRAY(opts));
	rng.state = vu.seed;
	poll_rng.state = ~vu.seed;
	how = vu_poll_of(poll_name);
	for (size_t i = 0; i < nwaiters; i++)
		if (wanted(only, waiters[i].name)) {
			use_waiter(&waiters[i]);
			n++;
		}
	for (size_t i = 0; i < VU_ARRAY(cases); i++)
		if (wanted(only, cases[i].name)) {
			vu_at(cases[i].name);
			cases[i].run();
			vu_log("%s: ok\n", cases[i].name);
			n++;
		}
	vu_check(n, "no case \"%s\"", only);
	return vu_pass("%d cases", n);
}
