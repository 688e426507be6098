/* SPDX-License-Identifier: BSD-2-Clause */
#include "scheduler/pace.h"

#include "scheduler/control.h"

#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)
#define PPM UINT64_C(1000000)

#define EPOCH_NS (4 * MSEC)
#define EPOCH_CHUNKS 4
#define EPOCH_MAX_NS SEC
#define LEAST_NS (5 * SEC) /* a shortest stay older than two of these is forgotten */

#define STEP_BLIND 125000 /* ppm: nothing is known of the port */
#define STEP_MAX 20000
#define STEP_MIN 1000
#define LEFTOVER_EPOCHS 3 /* RNICE_OPEN_NS of bytes leave the NIC meanwhile */
#define CUT 4
#define CUT_MAX 300000
#define FULL 2	/* epochs in a row: one may be a program that was off its CPU */
#define CALM 16 /* so many epochs without waiting: the edge has moved, take larger steps */

#define UNDER_WAY_MAX 30 /* chunks */

#define PAIRS_TRIAL 16		  /* epochs */
#define PAIRS_AGAIN_NS (30 * SEC) /* after a trial that failed */

#define LEVEL_MIN 10000 /* bytes/s */
#define LEVEL_MAX UINT64_C(1000000000000)
#define FIRST_PERCENT 92 /* of a known rate, to start with */
#define BLIND_PERCENT 50 /* of one that may have been a burst */
#define FLOOR_PERCENT 80 /* of a rate the port is sure to have: no misjudgement costs more */

static uint64_t clamp(uint64_t v, uint64_t lo, uint64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static void begin_epoch(struct rnice_pace *p, uint64_t now)
{
	p->at = now;
	p->done = p->stayed = p->staying = p->pieces = 0;
}

static void start(struct rnice_pace *p, const struct rnice_pace_in *in)
{
	p->level = rnice_muldiv(in->rate, in->firm ? FIRST_PERCENT : BLIND_PERCENT, 100);
	p->step = in->firm ? STEP_MAX : STEP_BLIND;
	p->calm = 0;
	p->least = p->least_before = 0;
	begin_epoch(p, in->now);
}

static void make_sane(struct rnice_pace *p, const struct rnice_pace_in *in)
{
	if (!p->level || p->level > LEVEL_MAX)
		start(p, in);
	p->level = clamp(p->level, LEVEL_MIN, LEVEL_MAX);
	p->step = clamp(p->step, STEP_MIN, STEP_BLIND);
	if (p->at > in->now)
		begin_epoch(p, in->now);
	if (p->least_at > in->now)
		p->least_at = 0;
	p->draining = clamp(p->draining, 0, LEFTOVER_EPOCHS);
	p->pairs = clamp(p->pairs, 0, PAIRS_TRIAL);
	if (p->pairs_at > in->now + PAIRS_AGAIN_NS)
		p->pairs_at = 0;
}

uint64_t rnice_pace_trip(const struct rnice_pace *p)
{
	return p->least_before && p->least_before < p->least ? p->least_before : p->least;
}

/*
 * The shortest stay of the last 5 to 10 seconds, with this one. None is forgotten while the port
 * serves less than it gets, as all that is seen then has waited.
 */
static uint64_t shortest(struct rnice_pace *p, uint64_t stay, uint64_t now, bool keeps_up)
{
	if (keeps_up && now - p->least_at > LEAST_NS) {
		p->least_before = p->least;
		p->least = stay;
		p->least_at = now;
	}
	if (!p->least || stay < p->least)
		p->least = stay;
	return rnice_pace_trip(p);
}

/* What was the shortest stay is none to compare with any longer. */
static void forget(struct rnice_pace *p, uint64_t stay, uint64_t now)
{
	p->least = stay;
	p->least_before = 0;
	p->least_at = now;
	p->full = 0;
}

uint64_t rnice_pace_chunk(const struct rnice_pace *p, uint64_t packet)
{
	return p->pairs && packet <= RNICE_CHUNK_MAX / 2 ? 2 * packet : packet;
}

/*
 * Each chunk costs an ACK and the headers of a message, so two packets are better than one if the
 * second does not wait for the first: on a port that saves up what it does not use (a shaper with a
 * bucket), and then sends chunks in less time than one of their packets takes at its rate.
 */
static void choose_chunk(struct rnice_pace *p, const struct rnice_pace_in *in, uint64_t best,
			 uint64_t packet_ns)
{
	bool saves = best && best < packet_ns;

	if (!p->pairs && saves && in->now >= p->pairs_at) {
		p->pairs = 1;
	} else if (p->pairs == PAIRS_TRIAL && !saves) {
		p->pairs = 0;
		p->pairs_at = in->now + PAIRS_AGAIN_NS;
	} else {
		p->pairs += p->pairs && p->pairs < PAIRS_TRIAL;
		return;
	}
	forget(p, 0, in->now);
	p->draining = 1;
}

static void fall(struct rnice_pace *p, uint64_t served)
{
	uint64_t cut = clamp(CUT * p->step, 0, CUT_MAX);

	/* After a leap, what was served is the better estimate. */
	if (p->step > STEP_MAX && served < p->level)
		p->level = clamp(served, LEVEL_MIN, LEVEL_MAX);
	p->level -= rnice_muldiv(p->level, cut, PPM);
	p->step = clamp(p->step / 2, STEP_MIN, STEP_BLIND);
	p->calm = 0;
	p->draining = 1;
}

static void rise(struct rnice_pace *p)
{
	p->level += rnice_muldiv(p->level, p->step, PPM);
	if (++p->calm < CALM || p->step >= STEP_MAX)
		return;
	p->step = clamp(2 * p->step, STEP_MIN, STEP_MAX);
	p->calm = 0;
}

/*
 * Bytes in the NIC on average, by Little's law: are those of the window in use that pieces of
 * @piece bytes can use? Then there is a queue, even if no shorter stay was ever seen.
 */
static bool crowded(const struct rnice_pace *p, uint64_t piece, uint64_t stay, uint64_t served)
{
	uint64_t usable = clamp(p->window / piece, 1, UINT64_MAX) * piece;

	return rnice_muldiv(stay, served, SEC) >= usable / 8 * 7;
}

/*
 * One piece in service, a chunk behind it, and what is on its way when nothing waits; that four
 * thirds, not to be crowded by itself.
 */
static uint64_t window_for(const struct rnice_pace *p, uint64_t piece, uint64_t best,
			   uint64_t chunk)
{
	uint64_t bytes = rnice_muldiv(p->level, best, SEC);

	bytes -= clamp(piece, 0, bytes);
	return (2 + clamp((bytes / 3 * 4 + chunk / 2) / chunk, 0, UNDER_WAY_MAX)) * chunk;
}

static void judge(struct rnice_pace *p, const struct rnice_pace_in *in, uint64_t ns)
{
	uint64_t fastest = p->level > in->rate ? p->level : in->rate;
	uint64_t packet_ns = rnice_muldiv(in->packet, SEC, fastest);
	uint64_t stay = rnice_muldiv(p->stayed, 1024, p->staying);
	uint64_t served = rnice_muldiv(p->done, SEC, ns);
	bool keeps_up = served >= rnice_muldiv(p->level, 85, 100);
	uint64_t best = shortest(p, stay, in->now, keeps_up);
	uint64_t piece = p->pieces ? p->staying / p->pieces : 0;

	if (p->draining) {
		p->draining--;
		return;
	}
	piece = piece > in->chunk ? piece : in->chunk;
	if (stay > best + packet_ns * 9 / 20 || crowded(p, piece, stay, served))
		p->full++;
	else
		p->full = 0;
	if (p->full >= FULL && p->floored && keeps_up && stay < best + packet_ns) {
		/* So far below the rate none waits: the round trip has become longer. */
		forget(p, stay, in->now);
		p->step = STEP_MAX;
	} else if (p->full >= FULL) {
		fall(p, served);
	} else if (!p->full && in->backlog && keeps_up) {
		rise(p);
	}
	p->window = window_for(p, piece, best, in->chunk);
	choose_chunk(p, in, best, packet_ns);
}

void rnice_pace_step(struct rnice_pace *p, const struct rnice_pace_in *in)
{
	uint64_t ns, floor = in->firm ? rnice_muldiv(in->rate, FLOOR_PERCENT, 100) : 0;

	make_sane(p, in);
	p->done += in->done;
	p->stayed += in->stayed;
	p->staying += in->staying;
	p->pieces += in->pieces;
	ns = in->now - p->at;
	if (in->resumed)
		p->draining = LEFTOVER_EPOCHS;
	if (in->resumed || ns > EPOCH_MAX_NS) {
		begin_epoch(p, in->now);
	} else if (ns >= EPOCH_NS && p->staying >= EPOCH_CHUNKS * in->chunk) {
		judge(p, in, ns);
		begin_epoch(p, in->now);
	}
	if (p->window < 2 * in->chunk || p->window > (2 + UNDER_WAY_MAX) * in->chunk)
		p->window = 2 * in->chunk;
	p->floored = p->level <= floor;
	p->level = clamp(p->level, clamp(floor, LEVEL_MIN, LEVEL_MAX), LEVEL_MAX);
}

bool rnice_pace_doubts(const struct rnice_pace *p)
{
	return p->full >= FULL || p->floored;
}
