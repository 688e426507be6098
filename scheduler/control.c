/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the numbers come about.
 *
 * Rate. Completions are counted when somebody polls them, perhaps long after the NIC was done: a
 * program that comes back from a second of computing reports a whole window at once. But what is
 * reported late was in the NIC when the span began. So over a span
 *
 *	(bytes reported - bytes in the NIC at its start) / time  <=  true service rate
 *
 * whatever the polling. The estimate is the maximum of such lower bounds. A span ends when it
 * has seen 16 times what was in the NIC at its start, so the bound is within 1/16 of what was
 * served. The maximum gives way slowly (10 s) and only to spans that had a backlog throughout:
 * an idle or a waiting program says nothing about the port, and a spell of holding back does not
 * collapse it.
 *
 * Number of chunks. More chunks in the NIC never make bulk slower, and fewer never make latency
 * worse, so the least number at full speed is right. It depends on what nobody can know in
 * advance: the round trip, how fast completions are noticed, the NIC's start-up time per
 * message. So it is tried: now and then the next step of a ladder runs for some milliseconds,
 * alternating twice with the present one so that a change in the load hits both. A step up stays
 * if it gained 3 %, a step down if it lost less than 1.5 %. A trial without a change doubles the
 * time to the next, up to 8 s.
 */
#include "scheduler/control.h"

#include <string.h>

#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

#define RATE_MAX UINT64_C(2000000000000) /* bytes/s; above it is garbage */
#define PAUSE_NS (20 * MSEC)		 /* a tick this late: the device was idle */
#define SPAN_MIN_NS (10 * MSEC)
#define SPAN_LONG_NS (200 * MSEC)
#define SPAN_SHORT_NS (4 * MSEC)
#define SPAN_PACKETS 256
#define SPAN_MAX_NS SEC
#define RATE_FADE_NS (10 * SEC)
#define FORGET_NS (10 * SEC) /* a latency program silent for so long starts anew */
#define RETURN_NS (2 * SEC)  /* back within this: periodic, hold on until it is next due */

#define BLIND_WINDOW (64U << 10) /* open, rate not known yet */
#define BLIND_CHUNK (16U << 10)
#define BLIND_STALE_NS (250 * MSEC)

#define ARM_CHUNKS 128
#define ARM_MIN_NS (20 * MSEC)
#define ARM_MAX_NS (400 * MSEC)
#define GAP_MIN_NS (100 * MSEC)
#define GAP_MAX_NS (8 * SEC)
#define ARMS 4 /* present, other, present, other */

#define SLOW_CHUNK_NS UINT64_C(50000) /* chunks that take less are not paced */

static const uint8_t ladder[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32};
#define STEPS (sizeof(ladder) / sizeof(ladder[0]))
#define STEP_START 1 /* one chunk in service, one behind it */

static uint64_t clamp(uint64_t v, uint64_t lo, uint64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static uint64_t bytes_in(uint64_t rate, uint64_t ns)
{
	return rnice_muldiv(rate, ns, SEC);
}

/* Time to serve @bytes; @unknown when there is no rate yet. */
static uint64_t time_of(const struct rnice_control *c, uint64_t bytes, uint64_t unknown)
{
	return c->rate ? rnice_muldiv(bytes, SEC, c->rate) : unknown;
}

/* Whole packets that take about @ns, within [mtu, RNICE_CHUNK_MAX]. */
static uint64_t chunk_of(uint64_t bytes, uint64_t mtu)
{
	return clamp(bytes / mtu, 1, RNICE_CHUNK_MAX / mtu) * mtu;
}

/* Any state, however it came about, is one that could have been. */
static void make_sane(struct rnice_control *c, uint64_t now)
{
	if (c->rate > RATE_MAX)
		c->rate = 0;
	if (c->seen > now)
		c->seen = 0;
	c->hold = clamp(c->hold, RNICE_HOLD_NS, RNICE_HOLD_MAX_NS);
	if (c->at == 0 || c->step >= STEPS)
		c->step = STEP_START;
	if (c->trial > ARMS || c->trial_step >= STEPS)
		c->trial = 0;
	c->arm_left = clamp(c->arm_left, 0, ARM_MAX_NS);
	c->trial_gap = clamp(c->trial_gap, GAP_MIN_NS, GAP_MAX_NS);
	if (c->trial_at > now + GAP_MAX_NS)
		c->trial_at = now;
	c->stride = clamp(c->stride, 1, STEPS);
	c->chunk = clamp(c->chunk, 1, RNICE_CHUNK_MAX);
}

bool rnice_control_protected(const struct rnice_control *c, uint64_t now)
{
	return c->seen != 0 && c->seen <= now && now - c->seen < c->hold;
}

static void watch_latency(struct rnice_control *c, const struct rnice_control_in *in)
{
	uint64_t gap = in->now - c->seen;

	if (!in->active) {
		if (gap > FORGET_NS)
			c->hold = RNICE_HOLD_NS;
		return;
	}
	if (c->seen && gap > c->hold)
		c->hold = gap > RETURN_NS ? RNICE_HOLD_NS : gap + gap / 4;
	c->seen = in->now;
}

static void begin_span(struct rnice_control *c, const struct rnice_control_in *in)
{
	c->span_at = in->now;
	c->span_bytes = 0;
	c->span_inflight = in->inflight;
	c->span_busy = in->backlog;
}

/*
 * Is @bound, over @ns, a rate to believe? A shaper lets some packets through at once after a
 * pause, which must not count as speed: so not before many packets' time, or if it is far more
 * than known.
 */
static bool believable(const struct rnice_control *c, uint64_t bound, uint64_t ns, uint64_t enough)
{
	return !c->rate || ns >= enough || (ns >= SPAN_SHORT_NS && bound / 3 * 2 > c->rate);
}

static void measure(struct rnice_control *c, const struct rnice_control_in *in, uint64_t mtu)
{
	uint64_t ns = in->now - c->span_at, bytes, bound = 0, enough;

	enough = clamp(SPAN_PACKETS * time_of(c, mtu, 0), SPAN_MIN_NS, SPAN_LONG_NS);
	bytes = c->span_bytes += in->done;
	c->span_busy = c->span_busy && in->backlog &&
		       (!c->pace || !c->firm || rnice_pace_doubts(&c->slow));
	if (bytes / 2 >= c->span_inflight)
		bound = clamp(rnice_muldiv(bytes - c->span_inflight, SEC, ns), 0, RATE_MAX);
	if (bound > c->rate && believable(c, bound, ns, enough))
		c->rate = bound;
	if (!c->firm && bound && c->span_busy && ns >= enough) {
		c->rate = bound; /* what was believed for want of anything better may have been a
				    burst */
		c->firm = 1;
	}
	if (ns < SPAN_MAX_NS && (ns < enough || bytes / 16 < c->span_inflight || !bytes))
		return;
	if (c->span_busy && bound && bound < c->rate)
		c->rate -= rnice_muldiv(c->rate - bound, clamp(ns, 0, RATE_FADE_NS), RATE_FADE_NS);
	begin_span(c, in);
}

/* The window doubles per tick until it is right; it shrinks at once. */
static void run_open(struct rnice_control *c, uint64_t mtu)
{
	uint64_t start, aim = BLIND_WINDOW;

	c->trial = 0;
	c->pace = 0;
	c->chunk = chunk_of(c->rate ? bytes_in(c->rate, MSEC) : BLIND_CHUNK, mtu);
	if (c->rate)
		aim = bytes_in(c->rate, RNICE_OPEN_NS);
	aim = clamp(aim, 2 * c->chunk, UINT64_MAX);
	start = clamp(c->window, 2 * c->chunk, UINT64_MAX);
	if (start < BLIND_WINDOW)
		start = BLIND_WINDOW;
	c->window = start < aim / 2 ? 2 * start : aim;
}

static void begin_arm(struct rnice_control *c, uint64_t trial)
{
	c->trial = trial;
	c->arm_left = clamp(ARM_CHUNKS * time_of(c, c->chunk, 0), ARM_MIN_NS, ARM_MAX_NS);
	c->arm_skip = 1; /* the first tick still sees chunks of the arm before */
}

static void begin_trial(struct rnice_control *c)
{
	if (c->step == 0)
		c->down = 0;
	else if (c->step == STEPS - 1)
		c->down = 1;
	if (c->down)
		c->trial_step = c->step - clamp(c->stride, 1, c->step);
	else
		c->trial_step = c->step + clamp(c->stride, 1, STEPS - 1 - c->step);
	memset(c->arm_bytes, 0, sizeof(c->arm_bytes));
	memset(c->arm_ns, 0, sizeof(c->arm_ns));
	begin_arm(c, 1);
}

static void judge_trial(struct rnice_control *c, uint64_t now)
{
	uint64_t present = rnice_muldiv(c->arm_bytes[0], SEC, c->arm_ns[0]);
	uint64_t other = rnice_muldiv(c->arm_bytes[1], SEC, c->arm_ns[1]);
	uint64_t enough = c->trial_step > c->step ? 1030 : 985;

	if (other >= rnice_muldiv(present, enough, 1000) && c->arm_bytes[0]) {
		c->step = c->trial_step;
		c->stride *= 2;
		c->trial_gap = GAP_MIN_NS;
		c->trial_at = now;
	} else {
		c->stride = 1;
		c->down = !c->down;
		c->trial_gap = clamp(2 * c->trial_gap, GAP_MIN_NS, GAP_MAX_NS);
		c->trial_at = now + c->trial_gap;
	}
	c->trial = 0;
}

/* One more tick of @ns with a backlog: account it to the arm that ran. */
static void advance_trial(struct rnice_control *c, const struct rnice_control_in *in, uint64_t ns)
{
	unsigned arm = (c->trial - 1) & 1;

	if (c->trial == 0) {
		if (in->now >= c->trial_at)
			begin_trial(c);
		return;
	}
	if (c->arm_skip) {
		c->arm_skip = 0;
		return;
	}
	c->arm_bytes[arm] += in->done;
	c->arm_ns[arm] += ns;
	c->arm_left -= clamp(ns, 0, c->arm_left);
	if (c->arm_left)
		return;
	if (c->trial == ARMS)
		judge_trial(c, in->now);
	else
		begin_arm(c, c->trial + 1);
}

/*
 * Does one chunk take longer than latency messages may wait? Then nothing is gained by finding the
 * least window: two packets keep such a port busy, and what hurts is the queue that stands
 * before it when it is busy all the time: see pace.h.
 */
static bool slow_port(const struct rnice_control *c, uint64_t preempt)
{
	return c->rate && time_of(c, c->chunk, 0) > clamp(preempt, SLOW_CHUNK_NS, SEC);
}

static void run_paced(struct rnice_control *c, const struct rnice_control_in *in, uint64_t mtu)
{
	struct rnice_pace_in p = {
		.now = in->now,
		.done = in->done,
		.stayed = in->stayed,
		.staying = in->staying,
		.pieces = in->pieces,
		.rate = c->rate,
		.firm = c->firm,
		.backlog = c->backlog && in->backlog,
		.resumed = !c->pace,
	};

	c->trial = 0;
	c->trial_at = in->now + SEC;
	c->chunk = rnice_pace_chunk(&c->slow, mtu);
	p.chunk = c->chunk;
	p.packet = mtu;
	rnice_pace_step(&c->slow, &p);
	c->window = c->slow.window;
	c->pace = c->slow.level;
}

static void run_protected(struct rnice_control *c, const struct rnice_control_in *in, uint64_t mtu)
{
	uint64_t preempt = clamp(in->preempt_ns, 1000, SEC);
	uint64_t step = c->trial && c->trial % 2 == 0 ? c->trial_step : c->step;

	c->chunk = chunk_of(bytes_in(c->rate, preempt / 2), mtu);
	c->window = ladder[step] * c->chunk;
	if (slow_port(c, preempt))
		run_paced(c, in, mtu);
	else
		c->pace = 0;
}

static void write_rules(const struct rnice_control *c, const struct rnice_control_in *in,
			struct rnice_rules *out)
{
	uint64_t slack = bytes_in(c->rate, 2 * MSEC), load = in->inflight, stale, asked;

	load = clamp(load, 0, UINT64_MAX / 2) + c->window;
	stale = rnice_muldiv(time_of(c, load, BLIND_STALE_NS / 8), 8, 1);
	asked = rnice_muldiv(time_of(c, c->window + c->chunk, MSEC), 4, 1);
	out->window = c->window;
	out->total = in->given && (!in->automatic || in->given > c->window) ? in->given : c->window;
	out->slack_kib = (uint32_t)((clamp(slack, 2 * c->chunk, UINT64_C(1) << 40) >> 10) + 1);
	out->chunk = (uint32_t)c->chunk;
	out->stale_ms = (uint16_t)(clamp(stale, 20 * MSEC, 10 * SEC) / MSEC);
	out->asked_us = (uint16_t)(clamp(asked, 2 * MSEC, 20 * MSEC) / 1000);
	out->retry_us = (uint16_t)(clamp(time_of(c, c->chunk, MSEC / 10), MSEC / 50, MSEC) / 1000);
	out->paced = c->pace != 0;
}

void rnice_control_step(struct rnice_control *c, const struct rnice_control_in *in,
			struct rnice_rules *out)
{
	uint64_t mtu = clamp(in->mtu ? in->mtu : RNICE_MTU_DEFAULT, 1, RNICE_CHUNK_MAX);
	uint64_t ns = in->now - c->at;

	make_sane(c, in->now);
	watch_latency(c, in);
	if (c->at == 0 || ns == 0 || ns > PAUSE_NS || c->span_at >= in->now ||
	    (!c->rate && !c->backlog)) {
		begin_span(c, in);
		c->trial = 0;
	} else {
		measure(c, in, mtu);
		if (rnice_control_protected(c, in->now) && c->backlog && in->backlog)
			advance_trial(c, in, ns);
	}
	if (rnice_control_protected(c, in->now))
		run_protected(c, in, mtu);
	else
		run_open(c, mtu);
	c->at = in->now;
	c->backlog = in->backlog;
	write_rules(c, in, out);
}
