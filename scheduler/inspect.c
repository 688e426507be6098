/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the segment for people: `rnice stat`. Everything may be garbage, or change meanwhile. */
#include <ctype.h>
#include <string.h>

#include "scheduler/proc.h"
#include "scheduler/register.h"

/* Words of text to a string of printable characters. */
static void copy_text(char *out, const uint64_t *words, size_t len)
{
	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t word = load_relaxed(&words[i / sizeof(uint64_t)]);

		memcpy(out + i, &word, sizeof(word));
	}
	out[len - 1] = '\0';
	for (char *c = out; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void copy_words(void *out, const uint64_t *in, size_t count)
{
	uint64_t *to = out;

	for (size_t i = 0; i < count; i++)
		to[i] = load_relaxed(&in[i]);
}

bool rnice_segment_device(const struct rnice_segment *seg, unsigned dev,
			  struct rnice_device_stat *out)
{
	const struct shm_device *d;
	struct rnice_control c;

	if (dev >= RNICE_MAX_DEVICES)
		return false;
	d = &seg->shm->device[dev];
	if (!load_relaxed(&d->key))
		return false;
	copy_text(out->name, d->name, sizeof(out->name));
	copy_words(&c, d->control, RNICE_CONTROL_WORDS);
	out->rate = c.rate;
	out->window = load_relaxed(&d->rules.total);
	out->chunk = load_relaxed(&d->rules.chunk);
	out->latency_active = rnice_control_protected(&c, rnice_clock_ns());
	out->doorbells = rnice_doorbells_reserved(seg->shm, dev);
	return true;
}

static uint64_t posts_of(const struct shm_slot *slot, const struct shm_flow *flow)
{
	uint64_t mask = load_relaxed(&flow->lines), posts;

	posts = load_relaxed(&flow->posts) + load_relaxed(&flow->retired);
	for (; mask; mask &= mask - 1)
		posts += load_relaxed(&slot->line[__builtin_ctzll(mask)].posts);
	return posts;
}

bool rnice_segment_proc(const struct rnice_segment *seg, unsigned slot, struct rnice_proc_stat *out)
{
	const struct shm_slot *s;
	struct rnice_owner self;
	uint64_t word;

	if (slot >= RNICE_MAX_PROCS)
		return false;
	s = &seg->shm->slot[slot];
	word = load_relaxed(&s->owner);
	/* S2 acquire, pairs with S1 in fill(). */
	if (!word || load_acquire(&s->ready) != word)
		return false;
	rnice_owner_self(&self);
	if (rnice_owner_judge(&self, word) == RNICE_GONE)
		return false;
	out->pid = rnice_owner_pid(word);
	copy_text(out->comm, s->comm, sizeof(out->comm));
	out->cls = (uint8_t)load_relaxed(&s->cls);
	out->policy = (uint8_t)load_relaxed(&s->policy);
	out->uar = (uint8_t)load_relaxed(&s->uar);
	for (unsigned d = 0; d < RNICE_MAX_DEVICES; d++) {
		const struct shm_flow *f = &s->flow[d];

		out->dev[d].used = load_relaxed(&f->used) != 0;
		copy_words(out->dev[d].counter, f->counter, RNICE_CTR_COUNT);
		out->dev[d].counter[RNICE_CTR_INFLIGHT_BYTES] = rnice_flow_inflight(f);
		out->dev[d].latency_posts = posts_of(s, f);
		copy_words(out->dev[d].latency, f->latency, RNICE_LATENCY_BUCKETS);
	}
	return true;
}
