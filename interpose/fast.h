/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bypass QPs and unmanaged CQs at first sight: what a call needs is in one line, found by the
 * object's address. Whoever comes first has an entry until it is destroyed; objects that share its
 * hash, and all others, are found by the tables of table.h.
 *
 *	look		any thread, no lock: the program holds the object
 *	put		any thread, no lock; nothing happens if the entry is taken
 *	suspend, put	may race: an object in use may be found or not, both are right
 *	del, forget	when nobody uses the object; there is one thread
 */
#ifndef RNICE_FAST_H
#define RNICE_FAST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define FAST_BITS 10

struct fast {
	/* The address; 0: free; 1: being filled in; the address | 1: suspended. */
	_Atomic uint64_t key;
	void *fn;	    /* the provider's post_send or poll_cq */
	uint64_t *activity; /* of a QP */
	void *complete;	    /* of a QP made for ibv_wr_*: the provider's wr_complete */
};

extern struct fast fast_qps[1 << FAST_BITS], fast_cqs[1 << FAST_BITS];

static inline struct fast *fast_at(struct fast *t, const void *p)
{
	/* The upper bits of a product depend on all bits of the lower half of the address. */
	return &t[(uint32_t)(uintptr_t)p * 0x9e3779b1u >> (32 - FAST_BITS)];
}

/*
 * F2 acquire, pairs with F1: if the key is @p, the rest of the entry is filled in. Compilers load
 * an atomic before they compare it; one instruction does both.
 */
static inline bool fast_is(const struct fast *f, const void *p)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	bool same;

	__asm__ volatile("cmpq %2, %1" : "=@cce"(same) : "m"(f->key), "r"(p) : "memory");
	return same;
#else
	return atomic_load_explicit(&f->key, memory_order_acquire) == (uint64_t)(uintptr_t)p;
#endif
}

/* NULL: look elsewhere. */
static inline const struct fast *fast_look(struct fast *t, const void *p)
{
	const struct fast *f = fast_at(t, p);

	return __builtin_expect(fast_is(f, p), 1) ? f : NULL;
}

void fast_put(struct fast *t, const void *p, struct fast what); /* its key does not count */
void fast_suspend(struct fast *t, const void *p);		/* until it is put again */
void fast_del(struct fast *t, const void *p);
void fast_forget(void); /* everything */

#pragma GCC visibility pop

#endif
