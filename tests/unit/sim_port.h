/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bulk processes that share a port, in made-up time: one queue in front of the wire, a round
 * trip behind it. Each process sends as its fields say and asks again when it was told to.
 */
#ifndef SIM_PORT_H
#define SIM_PORT_H

#include "test_segment.h"

#define SIM_PROCS 6
#define SIM_QUEUE 65536

struct sim_proc {
	struct rnice_proc_info info;
	uint64_t message;  /* length of each take; 0: rnice_port_chunk() */
	uint64_t depth;	   /* own limit of bytes in the NIC; 0: none */
	uint64_t trip;	   /* beside the port's */
	uint64_t from, to; /* has something to send between the two */
	bool one_by_one;   /* posts the next message when the one before is done */

	struct rnice_port *port;
	uint64_t inflight, next_ask, served, free_at;
	bool backlog;
};

struct sim_chunk {
	uint64_t done_at, bytes, since;
	unsigned proc;
};

struct sim {
	double rate;			     /* bytes per ns */
	uint64_t now, trip, wire_free, most; /* most: bytes that were ever in the NIC at once */
	unsigned procs;
	struct sim_proc proc[SIM_PROCS];
	struct sim_chunk queue[SIM_QUEUE];
	unsigned chunks;
	struct rnice_segment *seg;
};

static inline void sim_start(struct sim *s)
{
	s->seg = fresh_segment();
	s->now = 100 * SEC;
	s->trip = s->trip ? s->trip : 10 * USEC;
	for (unsigned i = 0; i < s->procs; i++) {
		s->proc[i].port = bulk_port(s->seg, s->proc[i].info);
		s->proc[i].from += s->now;
		s->proc[i].to = s->proc[i].to ? s->proc[i].to + s->now : UINT64_MAX;
		s->proc[i].next_ask = s->proc[i].from + i * USEC;
	}
}

static inline void sim_post(struct sim *s, unsigned i, uint64_t bytes)
{
	struct sim_proc *p = &s->proc[i];
	uint64_t start = s->wire_free > s->now ? s->wire_free : s->now, done, all = 0;
	unsigned at = s->chunks++;

	cr_assert_lt(s->chunks, SIM_QUEUE);
	s->wire_free = start + 1 + (uint64_t)((double)bytes / s->rate);
	done = s->wire_free + s->trip + p->trip;
	for (; at && s->queue[at - 1].done_at > done; at--)
		s->queue[at] = s->queue[at - 1];
	s->queue[at] = (struct sim_chunk){done, bytes, s->now, i};
	p->inflight += bytes;
	for (unsigned j = 0; j < s->procs; j++)
		all += s->proc[j].inflight;
	s->most = all > s->most ? all : s->most;
}

static inline void sim_backlog(struct sim_proc *p, bool any, uint64_t now)
{
	if (p->backlog != any)
		rnice_port_backlog(p->port, any, now);
	p->backlog = any;
}

/* Send what can be sent now. */
static inline void sim_ask(struct sim *s, unsigned i)
{
	struct sim_proc *p = &s->proc[i];

	p->next_ask = UINT64_MAX;
	if (s->now < p->from || s->now >= p->to) {
		sim_backlog(p, false, s->now);
		p->next_ask = s->now < p->from ? p->from : UINT64_MAX;
		return;
	}
	sim_backlog(p, true, s->now);
	for (;;) {
		uint64_t bytes = p->message ? p->message : rnice_port_chunk(p->port);

		if (p->depth && p->inflight + bytes > p->depth && p->inflight)
			break;
		if (p->one_by_one && p->inflight)
			break;
		if (!rnice_port_take(p->port, bytes, s->now)) {
			p->next_ask = s->now + rnice_port_retry_ns(p->port, s->now);
			return;
		}
		sim_post(s, i, bytes);
	}
	if (p->one_by_one)
		sim_backlog(p, false, s->now);
	else
		p->next_ask = s->now + rnice_port_retry_ns(p->port, s->now);
}

static inline void sim_complete(struct sim *s)
{
	struct sim_chunk c = s->queue[0];

	memmove(s->queue, s->queue + 1, --s->chunks * sizeof(c));
	s->proc[c.proc].inflight -= c.bytes;
	s->proc[c.proc].served += c.bytes;
	if (rnice_port_paced(s->proc[c.proc].port))
		rnice_port_stayed(s->proc[c.proc].port, c.bytes, c.since, s->now, s->now);
	rnice_port_done(s->proc[c.proc].port, c.bytes, true, s->now);
	sim_ask(s, c.proc);
}

static inline void sim_run(struct sim *s, uint64_t ns)
{
	uint64_t end = s->now + ns;

	while (s->now < end) {
		unsigned who = 0;

		for (unsigned i = 1; i < s->procs; i++)
			if (s->proc[i].next_ask < s->proc[who].next_ask)
				who = i;
		if (s->chunks && s->queue[0].done_at <= s->proc[who].next_ask) {
			s->now = s->queue[0].done_at;
			sim_complete(s);
		} else {
			cr_assert_neq(s->proc[who].next_ask, UINT64_MAX, "nobody moves");
			s->now = s->proc[who].next_ask;
			sim_ask(s, who);
		}
	}
}

static inline void sim_reset(struct sim *s)
{
	for (unsigned i = 0; i < s->procs; i++)
		s->proc[i].served = 0;
}

/* Of the port's bytes in the last @ns, what share went to process @i? */
static inline double sim_share(const struct sim *s, unsigned i, uint64_t ns)
{
	return (double)s->proc[i].served / (s->rate * (double)ns);
}

#endif
