/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the shim's state of a verbs object by a 64-bit key (the object's address, or its QP
 * number), cheaply enough for the data path: one multiplication, and as a rule one probe.
 *
 *		get	put/del
 *	get	-	no lock
 *	put/del	no lock	table_lock
 *
 * A get may run beside a put or del of *other* keys. A get of a key that is being deleted is the
 * program using an object while it destroys it, which verbs forbids. Tables that were outgrown are
 * kept as long as the table: a reader may still be inside. Doubling bounds the waste to the size of
 * the last one.
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
	uint64_t mask; /* of byte offsets: (entries - 1) * sizeof(struct table_entry) */
	uint64_t used; /* entries whose key is not 0 */
	struct table_slots *outgrown;
	struct table_entry e[] __attribute__((aligned(16))); /* none in two cache lines */
};

struct table {
	_Atomic(struct table_slots *) slots; /* never NULL in a table made by TABLE_INIT */
};

extern struct table_slots table_empty;
#define TABLE_INIT           \
	{                    \
		&table_empty \
	}

#define TABLE_DELETED 1ULL /* never an object's address, never a key made by table_qpn_key() */

/* The byte offset of the first probe of @key in e[]. */
static inline uint64_t table_first(const struct table_slots *s, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ULL) >> 28 & s->mask;
}

static inline struct table_entry *table_at(struct table_slots *s, uint64_t offset)
{
	return (struct table_entry *)((char *)s->e + offset);
}

static inline uint64_t table_ptr_key(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static inline uint64_t table_qpn_key(uint32_t qp_num)
{
	return ((uint64_t)qp_num << 8) | 2;
}

void *table_get(struct table *t, uint64_t key); /* NULL: not there */

/* table_get() for the hot paths: only the first probe. NULL says nothing; ask table_get() then. */
static inline void *table_peek(struct table *t, uint64_t key)
{
	/* T2 acquire, pairs with T1 release in grow(): the slots are filled before they are seen.
	 */
	struct table_slots *s = atomic_load_explicit(&t->slots, memory_order_acquire);
	struct table_entry *e = table_at(s, table_first(s, key));

	/* T4 acquire, pairs with T3 release in store(): key seen => value seen. */
	if (__builtin_expect(atomic_load_explicit(&e->key, memory_order_acquire) != key, 0))
		return NULL;
	return atomic_load_explicit(&e->val, memory_order_relaxed);
}

/* table_get(), the first probe of it inline. */
static inline void *table_near(struct table *t, uint64_t key)
{
	void *val = table_peek(t, key);

	return __builtin_expect(val != NULL, 1) ? val : table_get(t, key);
}

/* 0 or ENOMEM. A key that is already there gets the new value. */
int table_put(struct table *t, uint64_t key, void *val);
/* Only if @key still belongs to @val: addresses and QP numbers are used again. */
void table_del(struct table *t, uint64_t key, const void *val);
void table_forget(struct table *t); /* everything, and leaks it: readers may be inside */
void table_free(struct table *t);   /* nobody is */

#endif
