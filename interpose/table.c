/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define FIRST_SIZE 64
#define ENTRY sizeof(struct table_entry)

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* One entry that is never used; it counts as full, so that the first put makes a table. */
struct table_slots table_empty = {.used = 1, .e = {{0}}};

static uint64_t entries(const struct table_slots *s)
{
	return s->mask / ENTRY + 1;
}

static uint64_t key_at(struct table_slots *s, uint64_t offset)
{
	return atomic_load_explicit(&table_at(s, offset)->key, memory_order_acquire);
}

void *table_get(struct table *t, uint64_t key)
{
	struct table_slots *s = atomic_load_explicit(&t->slots, memory_order_acquire); /* T2 */
	uint64_t at, k;

	for (at = table_first(s, key); (k = key_at(s, at)) != 0; at = (at + ENTRY) & s->mask)
		if (k == key)
			return atomic_load_explicit(&table_at(s, at)->val, memory_order_relaxed);
	return NULL;
}

/* The entry of @key, or NULL with *@spot set to where it would go: a deleted entry if there is one.
 */
static struct table_entry *find(struct table_slots *s, uint64_t key, struct table_entry **spot)
{
	uint64_t at, k;

	*spot = NULL;
	for (at = table_first(s, key);; at = (at + ENTRY) & s->mask) {
		k = key_at(s, at);
		if (k == key)
			return table_at(s, at);
		if (!*spot && (!k || k == TABLE_DELETED))
			*spot = table_at(s, at);
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
	uint64_t size = old == &table_empty ? FIRST_SIZE : entries(old) * 2, at, k;
	struct table_slots *s = calloc(1, sizeof(*s) + size * ENTRY);

	if (!s)
		return ENOMEM;
	s->mask = (size - 1) * ENTRY;
	s->outgrown = old;
	for (at = 0; at <= old->mask; at += ENTRY) {
		k = key_at(old, at);
		if (k && k != TABLE_DELETED)
			store(s, k,
			      atomic_load_explicit(&table_at(old, at)->val, memory_order_relaxed));
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
	if ((s->used + 1) * 2 > entries(s))
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
static void tidy(struct table_slots *s, uint64_t at)
{
	if (key_at(s, (at + ENTRY) & s->mask))
		return;
	while (key_at(s, at) == TABLE_DELETED) {
		atomic_store_explicit(&table_at(s, at)->key, 0, memory_order_relaxed);
		s->used--;
		at = (at - ENTRY) & s->mask;
	}
}

void table_del(struct table *t, uint64_t key, const void *val)
{
	struct table_slots *s;
	struct table_entry *e, *spot;

	pthread_mutex_lock(&table_lock);
	s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	e = find(s, key, &spot);
	if (e && atomic_load_explicit(&e->val, memory_order_relaxed) == val) {
		atomic_store_explicit(&e->key, TABLE_DELETED, memory_order_relaxed);
		tidy(s, (uint64_t)((char *)e - (char *)s->e));
	}
	pthread_mutex_unlock(&table_lock);
}

void table_forget(struct table *t)
{
	atomic_store_explicit(&t->slots, &table_empty, memory_order_release);
}

void table_free(struct table *t)
{
	struct table_slots *s = atomic_load_explicit(&t->slots, memory_order_relaxed), *next;

	for (; s != &table_empty; s = next) {
		next = s->outgrown;
		free(s);
	}
}
