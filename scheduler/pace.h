/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast bulk may go on a slow port while a latency program is active; arithmetic only.
 *
 * On a port where one packet takes longer than latency messages may wait, no window is small
 * enough: a port that is busy all the time has a queue. Latency returns when bulk leaves a
 * little of the port free, so bulk goes by the clock. How much is little? The chunks tell: as
 * long as none waits, their stay in the NIC is a round trip; at the edge, it grows by the
 * service time of the chunk ahead. So, in epochs of a few milliseconds:
 *
 *	no waiting	the pace rises by a step
 *	waiting		the pace falls by CUT steps, and the step is halved
 *
 * which finds the edge from nothing known within half a second, without standing on it for long,
 * and then keeps just below it. The window stays as small as the round trip allows. A chunk is one
 * packet; two where the port takes both at once. The idea is that of TIMELY (SIGCOMM 2015): delay
 * tells before a loss or a full queue does.
 */
#ifndef RNICE_PACE_H
#define RNICE_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Words only, kept in the segment: whatever is in it, a step brings it back to sense. */
struct rnice_pace {
	uint64_t level;	 /* bytes/s; 0: nothing known */
	uint64_t step;	 /* ppm of the level */
	uint64_t window; /* bytes in the NIC at once */
	uint64_t calm;	 /* epochs in a row without waiting */
	/* the shortest mean stay of an epoch, ns: of this period and of the one before; 0: none */
	uint64_t least, least_before, least_at;
	uint64_t full;	   /* epochs in a row in which chunks waited */
	uint64_t pairs;	   /* epochs with chunks of two packets; 0: they have one */
	uint64_t pairs_at; /* not before that */
	uint64_t floored;  /* the known rate does not let it fall further */
	uint64_t draining; /* so many epochs say nothing yet: of what is in the NIC from before */
	/* the epoch */
	uint64_t at, done, stayed, staying, pieces;
};

struct rnice_pace_in {
	uint64_t now, done; /* bytes served since the last step */
	uint64_t stayed; /* the sum over @staying bytes of how long they were in the NIC, 1024 ns */
	uint64_t staying;
	uint64_t pieces; /* ... of so many chunks or uncut messages */
	uint64_t packet; /* bytes */
	uint64_t chunk;	 /* rnice_pace_chunk(): bytes */
	uint64_t rate;	 /* what is known of the port, bytes/s; 0: nothing */
	bool firm;	 /* ... and the port can serve as much for sure */
	bool backlog;
	bool resumed; /* it was not paced in the tick before */
};

/* Bytes per chunk, where a packet has @packet. */
uint64_t rnice_pace_chunk(const struct rnice_pace *p, uint64_t packet);

/* The shortest stay that is remembered, ns; 0: none. */
uint64_t rnice_pace_trip(const struct rnice_pace *p);

/* One tick of a paced port. Afterwards p->level is the pace, never 0, and p->window is set. */
void rnice_pace_step(struct rnice_pace *p, const struct rnice_pace_in *in);

/* Is there a queue although the pace fell, or did it fall as far as the known rate allows? */
bool rnice_pace_doubts(const struct rnice_pace *p);

#endif
