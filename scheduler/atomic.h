/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only atomic operations of rnice, named after their ordering. They work on plain integers, so
 * that a record in shared memory is a plain struct.
 *
 * relaxed: the value only; no other memory is read or written on the strength of it.
 * release: what this thread did before is visible to whoever reads the value with acquire.
 * seq_cst: in addition, all of them have one order that every thread agrees on. That is what
 *          "publish mine, then read yours" needs (port.c); nothing weaker will do there.
 *
 * Every acquire in the code names, by a label such as A2, the release it pairs with.
 */
#ifndef RNICE_ATOMIC_H
#define RNICE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#define load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define load_seq_cst(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* These return the value from before. */
#define add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define add_release(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELEASE)
#define add_seq_cst(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define sub_relaxed(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELAXED)
#define or_relaxed(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define or_seq_cst(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define and_relaxed(p, v) __atomic_fetch_and((p), (v), __ATOMIC_RELAXED)

/* True: *@p was @old and now is @new. */
static inline bool cas_seq_cst(uint64_t *p, uint64_t old, uint64_t new)
{
	return __atomic_compare_exchange_n(p, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* As above; when false, *@old is what was found instead. May fail for no reason: loop. */
static inline bool cas_weak_relaxed(uint64_t *p, uint64_t *old, uint64_t new)
{
	return __atomic_compare_exchange_n(p, old, new, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* A word that one writer increments and anybody reads: no locked instruction. */
static inline void bump_relaxed(uint64_t *p)
{
	store_relaxed(p, load_relaxed(p) + 1);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
