/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the shim's state of a verbs object by a 64-bit key (the object's address, or its QP
 *number), cheaply enough for the data path: one multiplication, and as a rule one probe.
 *
 *		get	put/del
 *	get	-	no lock
 *	put/del	no lock	table_lock
 *
 * A get may run beside a put or del of *other* keys. A get of a key that is being deleted is the
 * program using an object while it destroys it, which verbs forbids. Tables that were outgrown are
 * kept: a reader may still be inside; doubling bounds the waste to the size of the last one.
 */
#ifndef RNICE_TABLE_H
#define RNICE_TABLE_H

#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>

struct table_entry {
	_Atomic uint64_t key; /* 0: never used, TABLE_DELETED: was used */
	_Atomic(void *) val;
};

struct table_slots {
	size_t mask;
	size_t used; /* entries whose key is not 0 */
	struct table_entry e[];
};

struct table {
	_Atomic(struct table_slots *) slots;
};

#define TABLE_DELETED 1ULL /* never an object's address, never a key made by table_qpn_key() */

static inline size_t table_hash(uint64_t key)
{
	return (size_t)((key * 0x9e3779b97f4a7c15ULL) >> 32);
}

static inline uint64_t table_ptr_key(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static inline uint64_t table_qpn_key(uint32_t qp_num)
{
	return ((uint64_t)qp_num << 8) | 2;
}

static inline void *table_get(struct table *t, uint64_t key)
{
	/* T2 acquire, pairs with T1 release in grow(): the slots are filled before they are seen.
	 */
	struct table_slots *s = atomic_load_explicit(&t->slots, memory_order_acquire);
	size_t i;
	uint64_t k;

	if (__builtin_expect(!s, 0))
		return NULL;
	for (i = table_hash(key) & s->mask;; i = (i + 1) & s->mask) {
		/* T4 acquire, pairs with T3 release in table_put(): key seen => value seen. */
		k = atomic_load_explicit(&s->e[i].key, memory_order_acquire);
		if (__builtin_expect(k == key, 1))
			return atomic_load_explicit(&s->e[i].val, memory_order_relaxed);
		if (!k)
			return NULL;
	}
}

/* 0 or ENOMEM. A key that is already there gets the new value. */
int table_put(struct table *t, uint64_t key, void *val);
/* Only if @key still belongs to @val: addresses and QP numbers are used again. */
void table_del(struct table *t, uint64_t key, const void *val);

#endif
