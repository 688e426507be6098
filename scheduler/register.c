/* SPDX-License-Identifier: BSD-2-Clause */
#include "scheduler/register.h"

#include "scheduler/proc.h"

/* More than any host has: garbage. */
#define MAX_DOORBELLS 65536

/*
 * A register in one word, so that a reader never sees half of it:
 *
 *	bit 0        8         16       32       44        63
 *	    | device+1| threads | qps    | offset | page    | reserved
 */
#define THREADS_SHIFT 8
#define QPS_SHIFT 16
#define OFFSET_SHIFT 32
#define PAGE_SHIFT 44
#define RESERVED (UINT64_C(1) << 63)

/* ---- the budget ---- */

static uint32_t doorbells_of(const struct shm *shm, unsigned slot, unsigned dev)
{
	uint64_t n;

	if (!rnice_is_member(&shm->device[dev], slot))
		return 0;
	n = load_seq_cst(&shm->slot[slot].flow[dev].doorbells);
	return n <= MAX_DOORBELLS ? (uint32_t)n : 0;
}

uint32_t rnice_doorbells_reserved(const struct shm *shm, unsigned dev)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++)
		sum += doorbells_of(shm, i, dev);
	return sum;
}

/* The dead keep theirs until somebody looks. True: something was freed. */
static bool reap_holders(struct rnice_port *port)
{
	struct rnice_proc *proc = port->proc;
	struct shm *shm = proc->seg->shm;
	bool any = false;

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++) {
		uint64_t word = load_relaxed(&shm->slot[i].owner);

		if (word && doorbells_of(shm, i, port->index) &&
		    rnice_owner_judge(&proc->me, word) == RNICE_GONE)
			any |= rnice_proc_reap(proc->seg, &proc->me, i, word);
	}
	return any;
}

/* Publish mine, then read everybody's: of two that do so at once, at least one sees both. */
static bool try_reserve(struct rnice_port *port, uint32_t n, uint32_t budget)
{
	add_seq_cst(&port->flow->doorbells, n);
	if (rnice_doorbells_reserved(port->proc->seg->shm, port->index) <= budget)
		return true;
	sub_relaxed(&port->flow->doorbells, n);
	return false;
}

bool rnice_doorbells_reserve(struct rnice_port *port, uint32_t n, uint32_t budget)
{
	if (port->lost || !rnice_proc_owns(port->proc))
		return false; /* what this process takes would count nowhere */
	return try_reserve(port, n, budget) || (reap_holders(port) && try_reserve(port, n, budget));
}

void rnice_doorbells_unreserve(struct rnice_port *port, uint32_t n)
{
	if (!port->lost && rnice_proc_owns(port->proc))
		sub_relaxed(&port->flow->doorbells, n);
}

uint32_t rnice_doorbells_left(const struct rnice_port *port, uint32_t budget)
{
	uint32_t taken = rnice_doorbells_reserved(port->proc->seg->shm, port->index);

	return taken < budget ? budget - taken : 0;
}

/* ---- what is shown ---- */

int rnice_register_claim(struct rnice_port *port)
{
	uint64_t taken = load_relaxed(&port->proc->regs);
	int i;

	do {
		if (taken == UINT64_MAX)
			return -1;
		i = __builtin_ctzll(~taken);
	} while (!cas_weak_relaxed(&port->proc->regs, &taken, taken | UINT64_C(1) << i));
	return i;
}

static void store(struct rnice_port *port, int record, uint64_t word)
{
	if (!port->lost && rnice_proc_owns(port->proc))
		store_relaxed(&port->proc->slot->reg[record], word);
}

void rnice_register_release(struct rnice_port *port, int record)
{
	if (record < 0)
		return;
	store(port, record, 0);
	and_relaxed(&port->proc->regs, ~(UINT64_C(1) << record));
}

static uint64_t at_most(uint64_t v, uint64_t max)
{
	return v < max ? v : max;
}

void rnice_register_show(struct rnice_port *port, int record, const struct rnice_register_stat *r)
{
	uint64_t word = port->index + 1;

	if (record < 0)
		return;
	word |= at_most(r->threads, 255) << THREADS_SHIFT;
	word |= at_most(r->qps, 65535) << QPS_SHIFT;
	word |= (uint64_t)(r->offset & 4095) << OFFSET_SHIFT;
	word |= at_most(r->page, (1 << 19) - 1) << PAGE_SHIFT;
	store(port, record, word | (r->reserved ? RESERVED : 0));
}

unsigned rnice_segment_registers(const struct rnice_segment *seg, unsigned slot,
				 struct rnice_register_stat *out)
{
	unsigned n = 0;

	if (slot >= RNICE_MAX_PROCS)
		return 0;
	for (unsigned i = 0; i < RNICE_MAX_REGISTERS; i++) {
		uint64_t word = load_relaxed(&seg->shm->slot[slot].reg[i]);
		unsigned device = word & 255;

		if (!device || device > RNICE_MAX_DEVICES)
			continue;
		out[n++] = (struct rnice_register_stat){
			.device = device - 1,
			.threads = word >> THREADS_SHIFT & 255,
			.qps = word >> QPS_SHIFT & 65535,
			.offset = word >> OFFSET_SHIFT & 4095,
			.page = word >> PAGE_SHIFT & ((1 << 19) - 1),
			.reserved = word & RESERVED,
		};
	}
	return n;
}
