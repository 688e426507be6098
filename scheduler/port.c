/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Admission: take, done, and whose turn it is.
 *
 * The window holds without a lock because everybody publishes before looking:
 *
 *	process P                           process Q
 *	W1: taken_P += bytes  (seq_cst)     W1: taken_Q += bytes  (seq_cst)
 *	R1: read taken_Q      (seq_cst)     R1: read taken_P      (seq_cst)
 *	    over the window? take it back       over the window? take it back
 *
 * All W1 and R1 have one order. Of any set of takes that stand, the last one's R1 saw those of
 * other processes, and its W1, which returns the sum before it, those of its own process: they
 * were all found to fit together. So at no time do more bytes stand than
 *
 *	window, or window - 1 + one take, if that take is the only one of its process
 *
 * of the window in force when they were taken. If two take back, the one that is behind in
 * virtual time has looked again for a moment before it gave up, so that both do so again and
 * again is not to be expected.
 *
 * Turn: a process that was refused though it holds less than its share is owed. Whoever is more
 * than the slack (2 ms of service) ahead in virtual time of one that is owed, waits. So over any
 * time two processes with a backlog differ by at most twice the slack and a take each. Nobody
 * waits for one that does not ask (asked_us) or that cannot use its turn because of limits of
 * its own.
 */
#include "scheduler/port.h"

#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/proc.h"
#include "telemetry/histogram.h"

#define UPKEEP_NS 250000
#define TICKED_NS 5000000 /* rules older than this must be renewed before anything is admitted */
#define SKEW_NS 20000000  /* a flow wrong for so long is not just between two instructions ... */
#define SKEW_SEEN 16	  /* ... if it was each time somebody looked */
#define VTIME_SANE (INT64_C(1) << 41) /* bytes; a larger distance is garbage */
#define DUE_SANE INT64_C(10000000000) /* ns; what is due later than that is garbage */
#define STAY_MOST 3   /* times the service time of a chunk, beyond the trip; a full window is two */
#define BLURRED 8     /* a stay must be known within this part of a chunk's service time ... */
#define BLURRED_RUN 8 /* ... unless so many in a row are not */
#define STAY_SANE (UINT64_C(1) << 38)	  /* bytes times 1024 ns; tick.c drops what is more */
#define PAY_MAX_NS UINT64_C(600000000000) /* no message takes longer */
#define RETRY_MIN_NS 20000
#define RETRY_MAX_NS 1000000
#define AGAIN 16 /* looks before giving up what was published */

/* The others on the device, at one glance. */
struct others {
	uint64_t bytes;	 /* in the NIC */
	unsigned rivals; /* that have a backlog */
	bool backlog;	 /* any of them? least is set */
	uint64_t least;	 /* virtual time of the last of those with a backlog */
	bool owed;	 /* any owed? first is set */
	uint64_t first;	 /* virtual time of the last of those owed */
	unsigned first_slot;
};

enum verdict { FITS, NO_ROOM, NOT_MY_TURN, OWN_LIMIT, RATE_LIMIT };

static bool earlier(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

static void look_at(struct others *o, const struct shm_flow *flow, unsigned slot, uint64_t now,
		    uint64_t stale, uint64_t silent)
{
	uint64_t bytes = rnice_flow_inflight(flow), v;
	uint32_t want = load_relaxed(&flow->want);

	/* The stamp after the bytes: whoever publishes bytes (W1) has set it before. */
	if (bytes && rnice_fresh(load_relaxed(&flow->moved), now, stale))
		o->bytes += bytes;
	if (!want || !rnice_fresh(load_relaxed(&flow->asked), now, silent))
		return;
	v = rnice_flow_vtime(flow);
	o->rivals++;
	if (!o->backlog || earlier(v, o->least))
		o->least = v;
	o->backlog = true;
	if (want & FLOW_OWED && (!o->owed || earlier(v, o->first))) {
		o->owed = true;
		o->first = v;
		o->first_slot = slot;
	}
}

/* Cost: one line of the segment for each other member. */
static __attribute__((noinline)) void look_at_members(const struct rnice_port *port, uint64_t now,
						      struct others *o)
{
	const struct shm *shm = port->proc->seg->shm;
	const struct shm_device *dev = port->dev;
	uint64_t stale = load_relaxed(&dev->rules.stale_ms) * UINT64_C(1000000);
	uint64_t silent = load_relaxed(&dev->rules.asked_us) * UINT64_C(1000);

	for (unsigned w = 0; w < SHM_MEMBER_WORDS; w++) {
		uint64_t mask = load_seq_cst(&dev->members[w]) & ~port->self[w];

		for (; mask; mask &= mask - 1) {
			unsigned slot = w * 64 + (unsigned)__builtin_ctzll(mask);

			look_at(o, &shm->slot[slot].flow[port->index], slot, now, stale, silent);
		}
	}
}

/* Is any other process on the device? No loop: this is done twice for each take. */
static inline bool anybody(const struct rnice_port *port)
{
	const uint64_t *members = port->dev->members, *self = port->self;

	_Static_assert(SHM_MEMBER_WORDS == 4, "all of them");
	return (load_seq_cst(&members[0]) & ~self[0]) | (load_seq_cst(&members[1]) & ~self[1]) |
	       (load_seq_cst(&members[2]) & ~self[2]) | (load_seq_cst(&members[3]) & ~self[3]);
}

/* R1. */
static inline void look(const struct rnice_port *port, uint64_t now, struct others *o)
{
	*o = (struct others){0};
	if (unlikely(anybody(port)))
		look_at_members(port, now, o);
}

static inline uint64_t window_of(const struct rnice_port *port)
{
	return port->fixed_window ? port->fixed_window : load_relaxed(&port->dev->rules.window);
}

/* The window of a process that is alone on the device. */
static inline uint64_t limit_of(const struct rnice_port *port)
{
	uint64_t total = load_relaxed(&port->dev->rules.total), own = window_of(port);

	return own < total ? own : total;
}

static inline bool unrivalled(const struct rnice_port *port)
{
	return !anybody(port) && !load_relaxed(&port->dev->rules.paced);
}

/* Do own bytes in the NIC still count? */
static inline bool counts(const struct rnice_port *port, uint64_t now)
{
	return rnice_fresh(load_relaxed(&port->flow->moved), now,
			   load_relaxed(&port->dev->rules.stale_ms) * UINT64_C(1000000));
}

/* Is there room for @bytes beside @mine of this process and what the others have? */
static inline enum verdict room(const struct rnice_port *port, const struct others *o,
				uint64_t mine, uint64_t bytes)
{
	uint64_t limit = load_relaxed(&port->dev->rules.total), total = mine + o->bytes;

	if (mine && mine + bytes > window_of(port))
		return OWN_LIMIT;
	if (unlikely(o->rivals) && mine && mine >= limit / (o->rivals + 1))
		return OWN_LIMIT;
	if (likely(total + bytes <= limit) || (mine == 0 && (total < limit || total == 0)))
		return FITS;
	return o->bytes ? NO_ROOM : OWN_LIMIT;
}

/* Has it asked lately? */
static inline bool competes(const struct rnice_port *port, uint64_t now)
{
	return rnice_fresh(load_relaxed(&port->flow->asked), now,
			   load_relaxed(&port->dev->rules.asked_us) * UINT64_C(1000));
}

static inline uint64_t slack_of(const struct rnice_port *port)
{
	return (uint64_t)load_relaxed(&port->dev->rules.slack_kib) << 10;
}

/*
 * Is somebody waiting who is owed bytes, and too far behind this process? Or too far behind
 * after a message of this process that was larger than its share of the window?
 */
static inline bool must_wait(const struct rnice_port *port, const struct others *o, uint64_t now)
{
	int64_t slack = (int64_t)slack_of(port);
	uint64_t v = rnice_flow_vtime(port->flow);

	if (likely(!o->backlog))
		return false;
	if (o->owed && (int64_t)(v - o->first) > slack)
		return true;
	return now < load_relaxed(&port->pay_until) && (int64_t)(v - o->least) > slack;
}

/*
 * A message of @bytes that cannot be cut went through. The others' shares of the window are
 * small against it, so they are never refused for long: they get the time to catch up all the
 * same. At most twice the message's own time, in case they cannot use it.
 */
static __attribute__((noinline)) void pay_back(struct rnice_port *port, uint64_t bytes,
					       uint64_t now)
{
	uint64_t ns = rnice_muldiv(bytes, 2000000000, load_relaxed(&port->dev->rate));

	store_relaxed(&port->pay_until, now + (ns < PAY_MAX_NS ? ns : 0));
}

/* Is nobody owed bytes before this process, at virtual time @v? */
static bool first_in_line(const struct rnice_port *port, const struct others *o, uint64_t v)
{
	return !o->owed || earlier(v, o->first) ||
	       (v == o->first && port->proc->index < o->first_slot);
}

/* Virtual time not before @v. */
static void lift_to(struct rnice_port *port, uint64_t v)
{
	int64_t behind = (int64_t)(v - rnice_flow_vtime(port->flow));

	if (behind > 0 || behind < -VTIME_SANE)
		store_relaxed(&port->flow->lift, v - load_relaxed(&port->flow->taken));
}

/*
 * Back from an idle spell: what was not used meanwhile is not owed. After a short one (it asked
 * within asked_us) up to @keep bytes are: a program that posts message by message is idle
 * between any two.
 */
static void forget_credit(struct rnice_port *port, const struct others *o, uint64_t keep)
{
	lift_to(port, (o->backlog ? o->least : load_relaxed(&port->dev->vclock)) - keep);
}

static void set_want(struct rnice_port *port, uint32_t want)
{
	if (load_relaxed(&port->flow->want) != want)
		store_relaxed(&port->flow->want, want);
}

static uint32_t backlog_of(const struct rnice_port *port)
{
	return load_relaxed(&port->backlog) ? FLOW_BACKLOG : 0;
}

static __attribute__((noinline)) bool refuse(struct rnice_port *port, enum verdict why,
					     uint64_t now)
{
	if (why == RATE_LIMIT)
		set_want(port, 0); /* no matter what the others do */
	else if (why == OWN_LIMIT)
		set_want(port, backlog_of(port));
	else
		set_want(port, FLOW_BACKLOG | FLOW_OWED);
	store_relaxed(&port->flow->asked, now);
	return false;
}

/* The flow says other than the truth: if it goes on saying so, mend it. */
static void mend_flow(struct rnice_port *port, uint64_t now)
{
	uint64_t skew = load_relaxed(&port->flow->taken) - load_relaxed(&port->flow->done) -
			load_relaxed(&port->inflight);

	if (skew != load_relaxed(&port->skew) || !skew) {
		store_relaxed(&port->skew, skew);
		store_relaxed(&port->skew_at, now);
		store_relaxed(&port->skew_seen, 0);
	} else if (add_relaxed(&port->skew_seen, 1) >= SKEW_SEEN &&
		   !rnice_fresh(load_relaxed(&port->skew_at), now, SKEW_NS)) {
		add_relaxed(&port->flow->lost, skew);
		add_release(&port->flow->done, skew);
		store_relaxed(&port->skew, 0);
	}
}

/*
 * Renew the rules if it is time. False: they are old, and another process is just about it: a
 * first take after a pause has to wait for it (if it died: for RNICE_TICK_NS).
 */
static bool renew_rules(struct rnice_port *port, uint64_t now)
{
	struct shm_device *dev = port->dev;
	uint64_t last = load_relaxed(&dev->tick);

	if (rnice_fresh(last, now, RNICE_TICK_NS))
		/* T2 acquire, pairs with T1 in tick.c. */
		return rnice_fresh(load_acquire(&dev->ticked), now, TICKED_NS);
	if (cas_seq_cst(&dev->tick, last, now)) {
		rnice_tick(port, now);
		return true;
	}
	return rnice_fresh(load_acquire(&dev->ticked), now, TICKED_NS);
}

/*
 * What a process does about every UPKEEP_NS when it asks. False: @bytes must not go now: the
 * rules are missing, or they changed so that @bytes was cut by a chunk length no longer in
 * force. It is over (upkeep_at) only when rules are there: meanwhile other threads of this
 * process do the same instead of taking bytes without rules.
 */
static __attribute__((noinline)) bool upkeep(struct rnice_port *port, uint64_t bytes, uint64_t now)
{
	uint64_t *word = &port->dev->members[port->proc->index / 64];
	uint64_t bit = UINT64_C(1) << (port->proc->index % 64);
	uint32_t before;

	if (!rnice_proc_owns(port->proc)) {
		store_relaxed(&port->lost, 1);
		store_relaxed(&port->upkeep_at, now);
		return true;
	}
	store_relaxed(&port->proc->slot->beat, now);
	if (!(load_relaxed(word) & bit))
		or_seq_cst(word, bit);
	mend_flow(port, now);
	before = rnice_port_chunk(port);
	if (!renew_rules(port, now))
		return false;
	/* U1 release, pairs with U2 in rnice_port_take_some(): upkeep done seen => rules seen. */
	store_release(&port->upkeep_at, now);
	return bytes > before || bytes <= rnice_port_chunk(port);
}

/* The slot is lost: this process looks after itself alone, and writes to private memory only. */
static bool take_alone(struct rnice_port *port, uint64_t bytes)
{
	uint64_t mine = add_relaxed(&port->inflight, bytes);

	if ((int64_t)mine <= 0 || mine + bytes <= window_of(port) || port->observe)
		return true;
	sub_relaxed(&port->inflight, bytes);
	return false;
}

/* ns until the pace lets the next chunk go; 0: now. Stamps far ahead are garbage. */
static uint64_t pace_wait(const struct rnice_port *port, uint64_t now)
{
	uint64_t wait;

	if (likely(!load_relaxed(&port->dev->rules.paced)))
		return 0;
	wait = load_relaxed(&port->dev->due) - now;
	return (int64_t)wait > 0 && wait < DUE_SANE ? wait : 0;
}

/*
 * @bytes went: the next may go when they are served at the pace. Who comes late does not delay
 * those behind it: the schedule goes on, up to one chunk late. Relaxed: the stamp publishes
 * nothing.
 */
static __attribute__((noinline)) void keep_pace(struct rnice_port *port, uint64_t bytes,
						uint64_t now)
{
	uint64_t pace = load_relaxed(&port->dev->pace), old = load_relaxed(&port->dev->due), due;
	uint64_t late = rnice_muldiv(rnice_port_chunk(port), 1000000000, pace ? pace : 1);
	uint64_t time = rnice_muldiv(bytes, 1000000000, pace ? pace : 1);

	if (late > DUE_SANE || time > DUE_SANE)
		return;
	do {
		due = old;
		if ((int64_t)(now - due) > (int64_t)late || (int64_t)(due - now) > DUE_SANE)
			due = now - late;
	} while (!cas_weak_relaxed(&port->dev->due, &old, due + time));
}

/* W1. Returns the own bytes in the NIC before it. */
static inline uint64_t enter(struct rnice_port *port, uint64_t bytes, uint64_t now)
{
	struct shm_flow *flow = port->flow;
	uint64_t done;

	add_relaxed(&port->inflight, bytes);
	store_relaxed(&flow->moved, now);
	/* done first, as in rnice_flow_inflight(): what ends meanwhile still counts. A2. */
	done = load_acquire(&flow->done);
	return rnice_sane_bytes(add_seq_cst(&flow->taken, bytes) - done);
}

static void leave(struct rnice_port *port, uint64_t bytes)
{
	sub_relaxed(&port->flow->taken, bytes);
	sub_relaxed(&port->inflight, bytes);
}

/* W1, R1, and back again if there is no room after all. @old: own bytes from before count. */
static bool publish(struct rnice_port *port, uint64_t bytes, bool old, uint64_t now)
{
	uint64_t v = rnice_flow_vtime(port->flow), mine = enter(port, bytes, now);
	struct others o;

	for (int i = 0; i < AGAIN; i++) {
		look(port, now, &o);
		if (likely(room(port, &o, old ? mine : 0, bytes) == FITS))
			return true;
		if (!first_in_line(port, &o, v))
			break;
		cpu_relax();
	}
	leave(port, bytes);
	return false;
}

/*
 * How many of @n takes may be made as one, when one may. *@shut: they are all there is room for,
 * and nobody but this process is the reason.
 */
static unsigned at_once(const struct rnice_port *port, const struct others *o, uint64_t mine,
			uint64_t bytes, unsigned n, bool *shut)
{
	uint64_t limit = limit_of(port), fit;

	if (n == 1 || o->rivals || load_relaxed(&port->dev->rules.paced))
		return 1;
	fit = limit > mine + o->bytes ? (limit - mine - o->bytes) / bytes : 0;
	if (fit >= n)
		return n;
	*shut = !o->bytes;
	return fit ? (unsigned)fit : 1;
}

/*
 * One take of a process that is alone on the device and has asked lately: no turn, no pace and no
 * others' bytes to look at. W1, and R1 by anybody(). False: admit() must look at everything.
 */
static inline bool take_unrivalled(struct rnice_port *port, uint64_t bytes, uint64_t now)
{
	uint64_t limit = limit_of(port);

	if (!unrivalled(port) || !competes(port, now) ||
	    rnice_flow_inflight(port->flow) + bytes > limit)
		return false;
	if (likely(enter(port, bytes, now) + bytes <= limit && !anybody(port)))
		return true;
	leave(port, bytes);
	return false;
}

static unsigned admit(struct rnice_port *port, uint64_t bytes, unsigned n, uint64_t now, bool *shut)
{
	struct others o;
	enum verdict v;
	uint64_t mine;
	bool old;

	if (likely(n == 1) && take_unrivalled(port, bytes, now))
		return 1;
	mine = rnice_flow_inflight(port->flow);
	old = mine == 0 || counts(port, now);
	look(port, now, &o);
	if (unlikely(!competes(port, now)))
		forget_credit(port, &o, 0);
	v = room(port, &o, old ? mine : 0, bytes);
	if (unlikely(v != FITS))
		return refuse(port, v, now);
	if (unlikely(must_wait(port, &o, now))) {
		lift_to(port, o.least); /* nothing, unless the distance is garbage */
		return refuse(port, NOT_MY_TURN, now);
	}
	if (unlikely(pace_wait(port, now)))
		return refuse(port, NO_ROOM, now);
	n = at_once(port, &o, old ? mine : 0, bytes, n, shut);
	while (unlikely(!publish(port, n * bytes, old, now))) {
		if (n == 1)
			return refuse(port, NO_ROOM, now);
		n = 1;
		*shut = false;
	}
	if (unlikely(load_relaxed(&port->dev->rules.paced)))
		keep_pace(port, n * bytes, now); /* it may have begun since at_once() */
	if (unlikely(o.rivals) &&
	    n * bytes > load_relaxed(&port->dev->rules.total) / (o.rivals + 1))
		pay_back(port, n * bytes, now);
	return n;
}

static unsigned take(struct rnice_port *port, uint64_t bytes, unsigned n, uint64_t now, bool *shut)
{
	if (unlikely(load_relaxed(&port->lost)))
		return take_alone(port, bytes);
	if (unlikely(port->observe)) {
		store_relaxed(&port->flow->moved, now);
		add_relaxed(&port->inflight, n * bytes);
		add_relaxed(&port->flow->taken, n * bytes);
	} else {
		n = admit(port, bytes, n, now, shut);
		if (!n)
			return 0;
	}
	set_want(port, backlog_of(port));
	store_relaxed(&port->flow->asked, now);
	return n;
}

unsigned rnice_port_take_some(struct rnice_port *port, uint64_t bytes, unsigned n, uint64_t now,
			      bool *shut)
{
	struct rnice_bucket *bucket = &port->proc->bucket;

	*shut = false;
	/* U2 acquire, pairs with U1 in upkeep(). */
	if (unlikely(!rnice_fresh(load_acquire(&port->upkeep_at), now, UPKEEP_NS)) &&
	    !upkeep(port, bytes, now))
		return 0;
	if (likely(!bucket->rate))
		return take(port, bytes, n, now, shut);
	if (!rnice_bucket_take(bucket, bytes, now))
		return load_relaxed(&port->lost) ? 0 : refuse(port, RATE_LIMIT, now);
	if (take(port, bytes, 1, now, shut))
		return 1;
	rnice_bucket_return(bucket, bytes);
	return 0;
}

bool rnice_port_take(struct rnice_port *port, uint64_t bytes, uint64_t now)
{
	bool shut;

	return rnice_port_take_some(port, bytes, 1, now, &shut);
}

/*
 * Is it known well enough when a chunk completed that was found at @now, and not yet at @looked? A
 * program that was off its CPU, or busy posting, says nothing. One that always looks late has to
 * be believed.
 */
static bool is_sharp(struct rnice_port *port, uint64_t looked, uint64_t now, uint64_t service)
{
	if (now - looked <= service / BLURRED) {
		store_relaxed(&port->blurred, 0);
		return true;
	}
	return add_relaxed(&port->blurred, 1) >= BLURRED_RUN;
}

/*
 * tick.c makes a mean of it. One that took very long was seen late all the same, or stood behind
 * something else than bulk; it must not outweigh all others.
 */
void rnice_port_stayed(struct rnice_port *port, uint64_t bytes, uint64_t since, uint64_t looked,
		       uint64_t now)
{
	uint64_t pace = load_relaxed(&port->dev->pace), trip = load_relaxed(&port->dev->trip);
	uint64_t chunk = rnice_port_chunk(port), stay = now - since, own, most;

	if (!since || load_relaxed(&port->lost))
		return;
	own = rnice_muldiv(bytes > chunk ? bytes : chunk, 1000000000, pace ? pace : 1);
	most = trip && trip < DUE_SANE ? trip + STAY_MOST * own : DUE_SANE;
	stay = stay < most ? stay : most;
	if (own > DUE_SANE || stay / 1024 > STAY_SANE / bytes)
		return;
	if (!is_sharp(port, looked, now, rnice_muldiv(chunk, 1000000000, pace ? pace : 1)))
		return;
	add_relaxed(&port->flow->stayed, stay / 1024 * bytes);
	add_relaxed(&port->flow->staying, bytes);
	add_relaxed(&port->flow->pieces, 1);
}

/* An error or a flush: the rate is not charged for it. */
static __attribute__((noinline)) void give_back(struct rnice_port *port, uint64_t bytes)
{
	add_relaxed(&port->flow->lost, bytes);
	rnice_bucket_return(&port->proc->bucket, bytes);
}

void rnice_port_done(struct rnice_port *port, uint64_t bytes, bool ok, uint64_t now)
{
	sub_relaxed(&port->inflight, bytes);
	if (unlikely(load_relaxed(&port->lost)))
		return;
	if (unlikely(!ok))
		give_back(port, bytes);
	/* A1 release, pairs with A2 in rnice_flow_inflight(): done seen => its taken seen. */
	add_release(&port->flow->done, bytes);
	store_relaxed(&port->flow->asked, now);
	store_relaxed(&port->flow->moved, now);
}

bool rnice_port_alone(const struct rnice_port *port)
{
	return unrivalled(port) && !port->proc->bucket.rate;
}

bool rnice_port_paced(const struct rnice_port *port)
{
	return load_relaxed(&port->dev->rules.paced);
}

uint64_t rnice_port_retry_ns(const struct rnice_port *port, uint64_t now)
{
	uint64_t wait = rnice_bucket_wait(&port->proc->bucket, now), ns = pace_wait(port, now);

	if (!ns)
		ns = load_relaxed(&port->dev->rules.retry_us) * UINT64_C(1000);
	ns = ns < RETRY_MIN_NS ? RETRY_MIN_NS : ns > RETRY_MAX_NS ? RETRY_MAX_NS : ns;
	return wait > ns ? wait : ns;
}

void rnice_port_backlog(struct rnice_port *port, bool any, uint64_t now)
{
	struct others o;

	store_relaxed(&port->backlog, any);
	if (load_relaxed(&port->lost))
		return;
	if (any) {
		if (!rnice_fresh(load_relaxed(&port->upkeep_at), now, UPKEEP_NS))
			upkeep(port, 0, now);
		look(port, now, &o);
		forget_credit(port, &o, competes(port, now) ? slack_of(port) : 0);
		/* Whoever was refused just before stays owed. */
		set_want(port, load_relaxed(&port->flow->want) | FLOW_BACKLOG);
	} else {
		set_want(port, 0);
	}
	store_relaxed(&port->flow->asked, now);
}

uint32_t rnice_port_chunk(const struct rnice_port *port)
{
	uint32_t chunk, mtu;

	if (port->fixed_chunk)
		return port->fixed_chunk;
	chunk = load_relaxed(&port->dev->rules.chunk);
	mtu = load_relaxed(&port->mtu);
	if (unlikely(chunk < mtu || chunk == 0))
		return mtu ? mtu : RNICE_MTU_DEFAULT;
	return likely(chunk <= RNICE_CHUNK_MAX) ? chunk : RNICE_CHUNK_MAX;
}

void rnice_port_set_mtu(struct rnice_port *port, uint32_t mtu)
{
	if (mtu <= load_relaxed(&port->mtu) || mtu > RNICE_CHUNK_MAX)
		return;
	store_relaxed(&port->mtu, mtu);
	if (!load_relaxed(&port->lost))
		store_relaxed(&port->flow->mtu, mtu);
}

void rnice_port_count(struct rnice_port *port, enum rnice_counter which, int64_t n)
{
	if ((unsigned)which < RNICE_CTR_COUNT && !load_relaxed(&port->lost))
		add_relaxed(&port->flow->counter[which], (uint64_t)n);
}

void rnice_port_latency(struct rnice_port *port, uint64_t ns)
{
	if (load_relaxed(&port->lost))
		return;
	add_relaxed(&port->flow->latency[rnice_histogram_bucket(ns)], 1);
	/* The only sign of life of a process that never asks for bytes. */
	store_relaxed(&port->proc->slot->beat, rnice_clock_ns());
}
