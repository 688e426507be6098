/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots: claimed, given back, and taken from the dead.
 *
 *	owner = 0 --CAS--> me, ready != me   claimed: records may hold leftovers, nobody reads them
 *	          --S1---> me, ready = me    in use
 *	          --CAS--> 0                 given back, records clean
 *	dead      --CAS--> reaper --S3--> 0  taken from the dead: the reaper cleans while it owns
 *
 * Whoever dies in any of these states leaves a word whose owner is dead: back to the last line.
 * Two that find the same dead owner: one CAS succeeds.
 */
#include "scheduler/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"

#define STATIC_CHUNK (64U << 10)
#define STATIC_WINDOW (256U << 10)
#define FOREIGN_STALE_NS (600 * UINT64_C(1000000000))

static void clear_words(void *p, size_t bytes)
{
	uint64_t *word = p;

	for (size_t i = 0; i < bytes / sizeof(*word); i++)
		store_relaxed(&word[i], 0);
}

/* The slot at rest. The caller owns it; readers may still look at it through old masks. */
static void clean(struct shm *shm, unsigned index)
{
	struct shm_slot *slot = &shm->slot[index];
	uint64_t bit = UINT64_C(1) << (index % 64);

	store_relaxed(&slot->ready, 0);
	for (unsigned d = 0; d < RNICE_MAX_DEVICES; d++) {
		/* taken before done, see rnice_flow_inflight(): a reader between sees nothing */
		store_release(&slot->flow[d].taken, 0);
		if (rnice_is_member(&shm->device[d], index))
			and_relaxed(&shm->device[d].members[index / 64], ~bit);
		clear_words(&slot->flow[d], sizeof(slot->flow[d]));
	}
	clear_words(slot->line, sizeof(slot->line));
	clear_words(slot->reg, sizeof(slot->reg));
}

bool rnice_proc_reap(struct rnice_segment *seg, const struct rnice_owner *me, unsigned slot,
		     uint64_t dead)
{
	uint64_t *owner = &seg->shm->slot[slot].owner;

	if (!cas_seq_cst(owner, dead, me->word))
		return false;
	clean(seg->shm, slot);
	/* S3 release, pairs with S4, the CAS in claim(): free => clean. Fails if taken for dead. */
	cas_seq_cst(owner, me->word, 0);
	return true;
}

/* Free what the dead left. */
static void reap_dead(struct rnice_segment *seg, const struct rnice_owner *me)
{
	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++) {
		uint64_t word = load_relaxed(&seg->shm->slot[i].owner);

		if (word && rnice_owner_judge(me, word) == RNICE_GONE)
			rnice_proc_reap(seg, me, i, word);
	}
}

/* As a last resort: slots of other pid namespaces that showed no life for ten minutes. */
static void reap_foreign(struct rnice_segment *seg, const struct rnice_owner *me)
{
	uint64_t now = rnice_clock_ns();

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++) {
		struct shm_slot *slot = &seg->shm->slot[i];
		uint64_t word = load_relaxed(&slot->owner);

		if (word && rnice_owner_judge(me, word) == RNICE_FOREIGN &&
		    !rnice_fresh(load_relaxed(&slot->beat), now, FOREIGN_STALE_NS))
			rnice_proc_reap(seg, me, i, word);
	}
}

/* Index of a slot that now has our word, or -1. */
static int claim(struct rnice_segment *seg, const struct rnice_owner *me)
{
	for (int i = 0; i < RNICE_MAX_PROCS; i++) {
		uint64_t *owner = &seg->shm->slot[i].owner;

		/* S4, pairs with S3: see there. */
		if (load_relaxed(owner) == 0 && cas_seq_cst(owner, 0, me->word))
			return i;
	}
	return -1;
}

static void fill(struct shm_slot *slot, const struct rnice_owner *me,
		 const struct rnice_proc_info *info)
{
	uint64_t comm[2];

	memcpy(comm, me->comm, sizeof(comm));
	store_relaxed(&slot->pidns, me->pidns);
	store_relaxed(&slot->start, me->start);
	store_relaxed(&slot->beat, rnice_clock_ns());
	store_relaxed(&slot->comm[0], comm[0]);
	store_relaxed(&slot->comm[1], comm[1]);
	store_relaxed(&slot->cls, info->cls);
	store_relaxed(&slot->policy, info->policy);
	store_relaxed(&slot->preempt_ns, info->preempt_ns);
	store_relaxed(&slot->chunk, info->chunk);
	store_relaxed(&slot->window, info->window);
	store_relaxed(&slot->rate, info->rate);
	store_relaxed(&slot->uar, info->uar);
	/* S1 release, pairs with S2 acquire wherever ready is read: ready => filled. */
	store_release(&slot->ready, me->word);
}

/* Policy static has sizes even if none were given. */
static void settle(struct rnice_proc_info *info)
{
	if (info->policy != RNICE_POLICY_STATIC)
		return;
	info->chunk = info->chunk ? info->chunk : STATIC_CHUNK;
	info->window = info->window ? info->window : STATIC_WINDOW;
}

static struct rnice_proc *new_proc(struct rnice_segment *seg, const struct rnice_proc_info *info)
{
	struct rnice_proc *proc;

	if (posix_memalign((void **)&proc, SHM_LINE, sizeof(*proc)) != 0)
		return NULL;
	memset(proc, 0, sizeof(*proc));
	proc->seg = seg;
	proc->info = *info;
	settle(&proc->info);
	rnice_bucket_init(&proc->bucket, info->rate);
	rnice_owner_self(&proc->me);
	return proc;
}

int rnice_proc_join(struct rnice_segment *seg, const struct rnice_proc_info *info,
		    struct rnice_proc **out)
{
	struct rnice_proc *proc;
	int slot;

	if (!seg->writable)
		return EACCES;
	proc = new_proc(seg, info);
	if (!proc)
		return ENOMEM;
	reap_dead(seg, &proc->me);
	slot = claim(seg, &proc->me);
	if (slot < 0) {
		reap_foreign(seg, &proc->me);
		slot = claim(seg, &proc->me);
	}
	if (slot < 0) {
		free(proc);
		return ENOSPC;
	}
	proc->index = (unsigned)slot;
	proc->slot = &seg->shm->slot[slot];
	clean(seg->shm, proc->index);
	fill(proc->slot, &proc->me, &proc->info);
	*out = proc;
	return 0;
}

void rnice_proc_leave(struct rnice_proc *proc)
{
	if (!proc)
		return;
	/* A forked child has a copy of this struct, but not the slot. */
	if (rnice_owner_pid(proc->me.word) == (uint32_t)getpid() && rnice_proc_owns(proc)) {
		clean(proc->seg->shm, proc->index);
		/* S3, pairs with S4. */
		cas_seq_cst(&proc->slot->owner, proc->me.word, 0);
	}
	free(proc);
}
