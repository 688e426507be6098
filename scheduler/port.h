/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Admission to one device (all its ports): how much bulk may be inside the NIC, in pieces of which
 * size, and whose turn it is. Knows bytes and nanoseconds, no verbs. Times are CLOCK_MONOTONIC ns,
 * given by the caller, so that everything can be tested with made-up clocks.
 *
 * Threads: every call from any thread, except attach/detach. Nothing here sleeps or allocates after
 * attach.
 */
#ifndef RNICE_PORT_H
#define RNICE_PORT_H

#include "scheduler/segment.h"

struct rnice_port;

/* Find or add the device @name in the segment. ENOSPC: all device records are taken. */
int rnice_port_attach(struct rnice_proc *proc, const char *name, struct rnice_port **out);
void rnice_port_detach(struct rnice_port *port);

/* The path MTU in bytes of a QP that goes out by this device: chunks are never auto-sized below it.
 */
void rnice_port_set_mtu(struct rnice_port *port, uint32_t mtu);

/* The chunk length in force for this process, bytes, >= 1. Cheap: one load. */
uint32_t rnice_port_chunk(const struct rnice_port *port);

/*
 * Ask for @bytes (one chunk, or one whole message that cannot be cut). True: they are accounted as
 * inside the NIC and must be given back with rnice_port_done(). False: nothing was taken; ask again
 * after a completion or after rnice_port_retry_ns(). A first chunk of a process whose turn it is is
 * always admitted, even if larger than the window.
 */
bool rnice_port_take(struct rnice_port *port, uint64_t bytes, uint64_t now);
/* @bytes left the NIC; @ok false for errors and flushes (they say nothing about the service rate).
 */
void rnice_port_done(struct rnice_port *port, uint64_t bytes, bool ok, uint64_t now);
/* Upper bound of how long to wait before asking again if no own completion comes first. */
uint64_t rnice_port_retry_ns(const struct rnice_port *port, uint64_t now);

/* The process's queue went from empty to not empty (true) or back (false). */
void rnice_port_backlog(struct rnice_port *port, bool any, uint64_t now);

/* Counters of rnice stat; relaxed adds on this process's own lines. */
void rnice_port_count(struct rnice_port *port, enum rnice_counter which, int64_t n);

/* An activity line for one latency QP, one writer at a time; the QP's poster increments it by a
 * plain relaxed load + store. Never NULL: when all lines are taken, QPs share one. */
uint64_t *rnice_port_activity_line(struct rnice_port *port);
void rnice_port_activity_release(struct rnice_port *port, uint64_t *line);

/* One sampled latency, post to completion. */
void rnice_port_latency(struct rnice_port *port, uint64_t ns);

#endif
