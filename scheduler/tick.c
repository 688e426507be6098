/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the control loop sees and writes. At most one tick per RNICE_TICK_NS and device, run by
 * the process that happened to ask; a winner that dies here costs one tick.
 *
 * Cost: one pass over the member slots, and over their activity lines until one is found that
 * changed: a few microseconds for a few processes. With nobody active at most LINES_PER_TICK
 * lines are looked at, the rest in the next ticks; after a pause all are, so that the first
 * chunk of a bulk program is already admitted by the right rules.
 */
#include "scheduler/proc.h"

#define MSEC UINT64_C(1000000)
#define LINES_PER_TICK 1024
#define PAUSE_NS (5 * MSEC)   /* a tick this late looks at everything */
#define SILENT_NS (2 * MSEC)  /* a process that has bytes and is silent for so long may be dead */
#define RECHECK_NS (4 * MSEC) /* but look at each only so often */
#define IDLE_RECHECK_NS (256 * MSEC)
#define CHECKS_PER_TICK 8 /* each is some system calls, ~10 us */
#define VTIME_SANE (INT64_C(1) << 41)

struct tick {
	struct rnice_port *port;
	struct shm *shm;
	struct shm_device *dev;
	uint64_t now;
	bool paused;
	struct rnice_control_in in;
	/* virtual time to start from: the least of those with a backlog, or the most of all */
	bool any_backlog, any;
	uint64_t least, most;
	unsigned checks;
};

static bool in_use(const struct shm_slot *slot)
{
	uint64_t word = load_relaxed(&slot->owner);

	/* S2 acquire, pairs with S1 in proc.c. */
	return word && load_acquire(&slot->ready) == word;
}

static uint64_t posts_of(const struct shm_slot *slot, const struct shm_flow *flow, unsigned *lines)
{
	uint64_t mask = load_relaxed(&flow->lines);
	uint64_t posts = load_relaxed(&flow->posts) + load_relaxed(&flow->retired);

	*lines += 1 + (unsigned)__builtin_popcountll(mask);
	for (; mask; mask &= mask - 1)
		posts += load_relaxed(&slot->line[__builtin_ctzll(mask)].posts);
	return posts;
}

/* Did a latency QP of anybody post since its line was last looked at? */
static bool find_activity(struct tick *t)
{
	unsigned s = (unsigned)(load_relaxed(&t->dev->cursor) % RNICE_MAX_PROCS), lines = 0;
	bool active = false;

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++, s = (s + 1) % RNICE_MAX_PROCS) {
		struct shm_slot *slot = &t->shm->slot[s];
		uint64_t *seen = &t->dev->watch[s].posts, posts;

		if (!rnice_is_member(t->dev, s))
			continue;
		if (!t->paused && lines > LINES_PER_TICK)
			break;
		posts = posts_of(slot, &slot->flow[t->port->index], &lines);
		if (posts == load_relaxed(seen))
			continue;
		store_relaxed(seen, posts);
		active = true;
		if (!t->paused)
			break;
	}
	/* An active one is asked first again; otherwise the search goes on where it stopped. */
	store_relaxed(&t->dev->cursor, s);
	return active;
}

/* The owner of @slot may be dead. */
static void check_owner(struct tick *t, unsigned slot, uint64_t recheck)
{
	uint64_t *checked = &t->dev->watch[slot].checked;
	uint64_t word = load_relaxed(&t->shm->slot[slot].owner);
	const struct rnice_owner *me = &t->port->proc->me;

	if (slot == t->port->proc->index || t->checks == CHECKS_PER_TICK || !word ||
	    rnice_fresh(load_relaxed(checked), t->now, recheck))
		return;
	store_relaxed(checked, t->now);
	t->checks++;
	if (rnice_owner_judge(me, word) == RNICE_GONE)
		rnice_proc_reap(t->port->proc->seg, me, slot, word);
}

static void note_vtime(struct tick *t, const struct shm_flow *flow, bool backlog)
{
	uint64_t v = rnice_flow_vtime(flow);

	if (backlog && (!t->any_backlog || (int64_t)(v - t->least) < 0))
		t->least = v;
	if (!t->any || (int64_t)(v - t->most) > 0)
		t->most = v;
	t->any_backlog |= backlog;
	t->any = true;
}

/* Ever growing, or from a new owner, or garbage. */
static uint64_t grown(uint64_t *seen, uint64_t now)
{
	uint64_t by = now - load_relaxed(seen);

	store_relaxed(seen, now);
	return by < UINT64_C(1) << 40 ? by : 0;
}

static void note_bytes(struct tick *t, unsigned s, const struct shm_flow *flow, bool moving)
{
	uint64_t inflight = rnice_flow_inflight(flow);
	uint64_t done = load_relaxed(&flow->done) - load_relaxed(&flow->lost);

	t->in.done += grown(&t->dev->watch[s].done, done);
	if (moving)
		t->in.inflight += inflight;
}

static void note_stay(struct tick *t, unsigned s, const struct shm_flow *flow)
{
	struct shm_watch *watch = &t->dev->watch[s];

	t->in.stayed += grown(&watch->stayed, load_relaxed(&flow->stayed));
	t->in.staying += grown(&watch->staying, load_relaxed(&flow->staying));
	t->in.pieces += grown(&watch->pieces, load_relaxed(&flow->pieces));
}

static void note_settings(struct tick *t, const struct shm_slot *slot, const struct shm_flow *flow)
{
	uint64_t preempt = load_relaxed(&slot->preempt_ns), window = load_relaxed(&slot->window);
	uint32_t mtu = load_relaxed(&flow->mtu);

	if (preempt && (!t->in.preempt_ns || preempt < t->in.preempt_ns))
		t->in.preempt_ns = preempt;
	if (mtu > t->in.mtu)
		t->in.mtu = mtu;
	if (window > t->in.given)
		t->in.given = window;
	t->in.automatic |= !window;
}

static void look_at(struct tick *t, unsigned s)
{
	struct shm_slot *slot = &t->shm->slot[s];
	struct shm_flow *flow = &slot->flow[t->port->index];
	uint64_t stale = load_relaxed(&t->dev->rules.stale_ms) * MSEC;
	uint64_t silent = load_relaxed(&t->dev->rules.asked_us) * UINT64_C(1000);
	bool asked = rnice_fresh(load_relaxed(&flow->asked), t->now, silent);
	bool moving = rnice_fresh(load_relaxed(&flow->moved), t->now, stale);
	bool backlog = asked && load_relaxed(&flow->want) & FLOW_BACKLOG;

	note_bytes(t, s, flow, moving);
	note_stay(t, s, flow);
	if (asked || moving)
		note_vtime(t, flow, backlog);
	t->in.backlog |= backlog;
	if (backlog || s == t->port->proc->index)
		note_settings(t, slot, flow);
	if (!rnice_fresh(load_relaxed(&flow->asked), t->now, SILENT_NS))
		check_owner(t, s,
			    rnice_flow_inflight(flow) || load_relaxed(&flow->want)
				    ? RECHECK_NS
				    : IDLE_RECHECK_NS);
}

/* A bit without a process behind it costs every asker a look: drop it. */
static void drop_member(struct tick *t, unsigned s)
{
	uint64_t bit = UINT64_C(1) << (s % 64);

	and_relaxed(&t->dev->members[s / 64], ~bit);
	if (in_use(&t->shm->slot[s]) &&
	    load_relaxed(&t->shm->slot[s].flow[t->port->index].used) == 1)
		or_seq_cst(&t->dev->members[s / 64], bit);
}

static void look_around(struct tick *t)
{
	for (unsigned s = 0; s < RNICE_MAX_PROCS; s++) {
		if (!rnice_is_member(t->dev, s))
			continue;
		if (in_use(&t->shm->slot[s]) &&
		    load_relaxed(&t->shm->slot[s].flow[t->port->index].used) == 1)
			look_at(t, s);
		else
			drop_member(t, s);
	}
}

static void advance_vclock(struct tick *t)
{
	uint64_t old = load_relaxed(&t->dev->vclock), new = t->any_backlog ? t->least : t->most;
	int64_t step = (int64_t)(new - old);

	/* Never back, except out of garbage. */
	if (t->any && (step > 0 || step < -VTIME_SANE))
		store_relaxed(&t->dev->vclock, new);
}

static void publish(struct shm_device *dev, const struct rnice_control *c,
		    const struct rnice_rules *r, uint64_t now)
{
	store_relaxed(&dev->pace, c->pace);
	store_relaxed(&dev->trip, rnice_pace_trip(&c->slow));
	store_relaxed(&dev->rate, c->rate);
	store_relaxed(&dev->rules.window, r->window);
	store_relaxed(&dev->rules.total, r->total);
	store_relaxed(&dev->rules.slack_kib, r->slack_kib);
	store_relaxed(&dev->rules.chunk, r->chunk);
	store_relaxed(&dev->rules.stale_ms, r->stale_ms);
	store_relaxed(&dev->rules.asked_us, r->asked_us);
	store_relaxed(&dev->rules.retry_us, r->retry_us);
	store_relaxed(&dev->rules.paced, r->paced);
	/* T1 release, pairs with T2 acquire in port.c: ticked now => these rules or newer. */
	store_release(&dev->ticked, now);
}

/* The state is words only, so it goes through the segment word by word. */
static void load_control(const struct shm_device *dev, struct rnice_control *c)
{
	for (unsigned i = 0; i < RNICE_CONTROL_WORDS; i++)
		((uint64_t *)c)[i] = load_relaxed(&dev->control[i]);
}

static void store_control(struct shm_device *dev, const struct rnice_control *c)
{
	for (unsigned i = 0; i < RNICE_CONTROL_WORDS; i++)
		store_relaxed(&dev->control[i], ((const uint64_t *)c)[i]);
}

void rnice_tick(struct rnice_port *port, uint64_t now)
{
	struct shm_device *dev = port->dev;
	struct tick t = {.port = port, .shm = port->proc->seg->shm, .dev = dev, .now = now};
	struct rnice_control c;
	struct rnice_rules rules;

	t.in.now = now;
	t.paused = !rnice_fresh(load_relaxed(&dev->ticked), now, PAUSE_NS);
	look_around(&t);
	t.in.active = find_activity(&t);
	advance_vclock(&t);
	load_control(dev, &c);
	rnice_control_step(&c, &t.in, &rules);
	store_control(dev, &c);
	publish(dev, &c, &rules, now);
}
