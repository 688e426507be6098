/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Admission to one device (all its ports): how much bulk may be inside the NIC, in pieces of
 * which size, and whose turn it is. Knows bytes and nanoseconds, no verbs. Times are
 * CLOCK_MONOTONIC ns, given by the caller, so that everything can be tested with made-up clocks.
 *
 * Nothing here sleeps, allocates, prints or takes a lock; errno is left alone. System calls (is
 * that process still alive?) are made only in a tick and only about processes that fell silent.
 *
 *	call             may run beside                cost
 *	attach, detach   all but attach and detach,    set-up
 *	                 and calls on what goes away
 *	take, done       all                           both: 12 ns alone, 20 beside one more
 *	                                               process, 3 per further one; a
 *	                                               tick per ms: 1 to 10 us
 *	backlog          all                           as take
 *	activity_line,   all, on different lines       a few atomics
 *	  _release
 *	posting          all; one writer per line      a plain load and store
 *	the rest         all                           one atomic or less
 *
 * What is promised. "Window" is what was given (RNICE_WINDOW), else what control.h computes.
 * Each process keeps its own, all together the largest.
 *
 * - Bytes in the NIC: at most the window; or less than the window + one take, if that take is
 *   the only one of its process (a message that cannot be cut). No interleaving exceeds that.
 * - Not counted any more: bytes of processes found dead (3 to 10 ms after somebody needs them),
 *   and bytes that have not moved for 8 times the service time of all that is in the NIC, at
 *   least 20 ms, at most 10 s. A queue pair in RNR or retry holds others up for no longer.
 * - Shares: processes that always have a backlog get the same bytes, to within 4 ms of service
 *   and two takes, however long it goes on. Who was idle has no credit. Who is held up by limits
 *   of its own does not hold up others.
 * - A latency program that posts is seen by the next tick (1 ms while bulk asks), and at the
 *   very first take of a bulk program that was idle. It is protected for 100 ms after its last
 *   post. One that posts every 0.1 to 2 s (heartbeats) is protected throughout from its second
 *   message on; a rarer one finds the port open each time: at most about 10 ms of bytes before
 *   it.
 */
#ifndef RNICE_PORT_H
#define RNICE_PORT_H

#include "scheduler/segment.h"

struct rnice_port;

/*
 * Find or add the device @name in the segment; again: the same port, which then takes as many
 * detaches. ENOSPC: all device records are taken (they stay as long as the segment).
 */
int rnice_port_attach(struct rnice_proc *proc, const char *name, struct rnice_port **out);
/* The last one: bytes still in the NIC do not count any more. */
void rnice_port_detach(struct rnice_port *port);

/* The path MTU in bytes of a QP that goes out by this device: no automatic chunk is below it. */
void rnice_port_set_mtu(struct rnice_port *port, uint32_t mtu);

/*
 * The chunk length in force for this process, bytes, >= 1. Cheap: one load. It is the last
 * tick's: call rnice_port_backlog() before it after a pause, or see a too long chunk refused
 * once.
 */
uint32_t rnice_port_chunk(const struct rnice_port *port);

/*
 * Ask for @bytes (one chunk, or one whole message that cannot be cut). True: they are accounted
 * as inside the NIC and must be given back with rnice_port_done(). False: nothing was taken; ask
 * again, with the chunk length in force then, after a completion or rnice_port_retry_ns(). Who
 * has a backlog and stops asking loses its turn after 2 to 20 ms.
 *
 * The first chunk of a process that has nothing in the NIC passes whenever the window has any
 * room and it is its turn, even if larger than the window.
 */
bool rnice_port_take(struct rnice_port *port, uint64_t bytes, uint64_t now);
/*
 * The same for up to @n chunks of @bytes each at once; how many were taken. Fewer than @n: ask for
 * the rest, one by one, unless *@shut: the window of this process is full.
 */
unsigned rnice_port_take_some(struct rnice_port *port, uint64_t bytes, unsigned n, uint64_t now,
			      bool *shut);
/*
 * @bytes left the NIC; @ok false for errors and flushes (they say nothing about the service rate).
 * Also to write off bytes that are stuck: but then never twice for the same bytes.
 */
void rnice_port_done(struct rnice_port *port, uint64_t bytes, bool ok, uint64_t now);
/*
 * If rnice_port_paced(), for each piece that went well: it was posted at @since (0: not known) and
 * found done at @now, by somebody who had last looked at @looked (0: not known), and not found it.
 * The pace is made of that.
 */
void rnice_port_stayed(struct rnice_port *port, uint64_t bytes, uint64_t since, uint64_t looked,
		       uint64_t now);
/*
 * Nobody waits for this process: it is the only one on the device, and neither a rate nor a pace
 * holds it. Then the @now of its takes may be some ms old.
 */
bool rnice_port_alone(const struct rnice_port *port);
/* Is it of use to say since when bytes were in the NIC, chunk by chunk? */
bool rnice_port_paced(const struct rnice_port *port);
/*
 * Upper bound of how long to wait before asking again if no own completion comes first: exact
 * for a rate limit (up to one message's time), otherwise a chunk's time within [20 us, 1 ms].
 */
uint64_t rnice_port_retry_ns(const struct rnice_port *port, uint64_t now);

/* The process's queue went from empty to not empty (true) or back (false). */
void rnice_port_backlog(struct rnice_port *port, bool any, uint64_t now);

/*
 * Counters of rnice stat; relaxed adds on this process's own lines. RNICE_CTR_INFLIGHT_BYTES
 * need not be counted: take and done know it.
 */
void rnice_port_count(struct rnice_port *port, enum rnice_counter which, int64_t n);

/*
 * An activity line for one latency QP, one writer at a time; the QP's poster increments it by a
 * plain relaxed load + store (bump_relaxed). Never NULL: a process has 64, then QPs share one.
 */
uint64_t *rnice_port_activity_line(struct rnice_port *port);
void rnice_port_activity_release(struct rnice_port *port, uint64_t *line);

/* One sampled latency, post to completion. */
void rnice_port_latency(struct rnice_port *port, uint64_t ns);

#endif
