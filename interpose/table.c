/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define FIRST_SIZE 64

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* The entry of @key, or NULL with *@spot set to where it would go: a deleted entry if there is one.
 */
static struct table_entry *find(struct table_slots *s, uint64_t key, struct table_entry **spot)
{
	size_t i;
	uint64_t k;

	*spot = NULL;
	for (i = table_hash(key) & s->mask;; i = (i + 1) & s->mask) {
		k = atomic_load_explicit(&s->e[i].key, memory_order_relaxed);
		if (k == key)
			return &s->e[i];
		if (!*spot && (!k || k == TABLE_DELETED))
			*spot = &s->e[i];
		if (!k)
			return NULL;
	}
}

static void store(struct table_slots *s, uint64_t key, void *val)
{
	struct table_entry *spot, *e = find(s, key, &spot);

	if (!e) {
		e = spot;
		if (!atomic_load_explicit(&e->key, memory_order_relaxed))
			s->used++;
	}
	atomic_store_explicit(&e->val, val, memory_order_relaxed);
	atomic_store_explicit(&e->key, key, memory_order_release); /* T3 */
}

static int grow(struct table *t, struct table_slots *old)
{
	size_t size = old ? (old->mask + 1) * 2 : FIRST_SIZE;
	struct table_slots *s = calloc(1, sizeof(*s) + size * sizeof(s->e[0]));
	size_t i;
	uint64_t k;

	if (!s)
		return ENOMEM;
	s->mask = size - 1;
	for (i = 0; old && i <= old->mask; i++) {
		k = atomic_load_explicit(&old->e[i].key, memory_order_relaxed);
		if (k && k != TABLE_DELETED)
			store(s, k, atomic_load_explicit(&old->e[i].val, memory_order_relaxed));
	}
	atomic_store_explicit(&t->slots, s, memory_order_release); /* T1 */
	return 0;
}

int table_put(struct table *t, uint64_t key, void *val)
{
	struct table_slots *s;
	int err = 0;

	pthread_mutex_lock(&table_lock);
	s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	if (!s || (s->used + 1) * 2 > s->mask)
		err = grow(t, s);
	if (!err)
		store(atomic_load_explicit(&t->slots, memory_order_relaxed), key, val);
	pthread_mutex_unlock(&table_lock);
	return err;
}

/*
 * A deleted entry must stay marked while a probe may have to pass it. None does when the next one
 * was never used (any more): then it counts as never used too, and so do the deleted ones before
 * it.
 */
static void tidy(struct table_slots *s, size_t i)
{
	if (atomic_load_explicit(&s->e[(i + 1) & s->mask].key, memory_order_relaxed))
		return;
	while (atomic_load_explicit(&s->e[i].key, memory_order_relaxed) == TABLE_DELETED) {
		atomic_store_explicit(&s->e[i].key, 0, memory_order_relaxed);
		s->used--;
		i = (i - 1) & s->mask;
	}
}

void table_del(struct table *t, uint64_t key, const void *val)
{
	struct table_slots *s;
	struct table_entry *e, *spot;

	pthread_mutex_lock(&table_lock);
	s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	e = s ? find(s, key, &spot) : NULL;
	if (e && atomic_load_explicit(&e->val, memory_order_relaxed) == val) {
		atomic_store_explicit(&e->key, TABLE_DELETED, memory_order_relaxed);
		tidy(s, (size_t)(e - s->e));
	}
	pthread_mutex_unlock(&table_lock);
}
