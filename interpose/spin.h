/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock for some dozen instructions: one atomic exchange to take, one store to drop. Who finds it
 * taken looks on without writing, and gives its CPU away when the holder seems to have lost its.
 */
#ifndef RNICE_SPIN_H
#define RNICE_SPIN_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#define SPIN_PATIENCE 200

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static __attribute__((cold, noinline)) void spin_wait(_Atomic uint32_t *lock)
{
	do {
		for (int i = 0; atomic_load_explicit(lock, memory_order_relaxed); i++) {
			if (i < SPIN_PATIENCE)
				spin_pause();
			else
				sched_yield();
		}
	} while (atomic_exchange_explicit(lock, 1, memory_order_acquire));
}

static inline void spin_lock(_Atomic uint32_t *lock)
{
	/* L1 acquire, pairs with L2 below: what the last holder did is seen. */
	if (__builtin_expect(atomic_exchange_explicit(lock, 1, memory_order_acquire), 0))
		spin_wait(lock);
}

static inline void spin_unlock(_Atomic uint32_t *lock)
{
	atomic_store_explicit(lock, 0, memory_order_release); /* L2 */
}

#endif
