/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/fast.h"

#define CLAIMED 1u /* by somebody who fills it in */

struct fast fast_qps[1 << FAST_BITS] __attribute__((aligned(64))); /* two entries a line */
struct fast fast_cqs[1 << FAST_BITS] __attribute__((aligned(64)));

static uint64_t key_of(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

void fast_put(struct fast *t, const void *p, struct fast what)
{
	struct fast *f = fast_at(t, p);
	uint64_t key = atomic_load_explicit(&f->key, memory_order_relaxed);

	if (key == (key_of(p) | 1)) {
		atomic_store_explicit(&f->key, key_of(p), memory_order_release); /* F1 */
		return;
	}
	if (key || !atomic_compare_exchange_strong(&f->key, &key, CLAIMED))
		return;
	f->fn = what.fn;
	f->activity = what.activity;
	f->complete = what.complete;
	atomic_store_explicit(&f->key, key_of(p), memory_order_release); /* F1 */
}

void fast_suspend(struct fast *t, const void *p)
{
	struct fast *f = fast_at(t, p);

	if (atomic_load_explicit(&f->key, memory_order_relaxed) == key_of(p))
		atomic_store_explicit(&f->key, key_of(p) | 1, memory_order_release);
}

void fast_del(struct fast *t, const void *p)
{
	struct fast *f = fast_at(t, p);

	if ((atomic_load_explicit(&f->key, memory_order_relaxed) | 1) == (key_of(p) | 1))
		atomic_store_explicit(&f->key, 0, memory_order_release);
}

static void forget(struct fast *t)
{
	for (unsigned i = 0; i < 1u << FAST_BITS; i++)
		if (atomic_load_explicit(&t[i].key, memory_order_relaxed))
			atomic_store_explicit(&t[i].key, 0, memory_order_relaxed);
}

void fast_forget(void)
{
	forget(fast_qps);
	forget(fast_cqs);
}
