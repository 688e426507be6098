/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which registers the QPs of this process ring, and which threads were seen to post to them.
 *
 * A thread gets a number at its first look. Bypass posts look one time in RNICE_SAMPLE_EVERY and
 * at a QP's first post; the other paths look each time, which is a test of one bit. What was
 * found goes into the segment for `rnice stat`, and into the plan for the next QP.
 */
#include "interpose/uar_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int thread_ids[NO_THREAD]; /* kernel's; 0: number is free */
/* In the static TLS block: one load. This thread's number + 1; 0: has none yet; OURS: never. */
#define OURS 255
static __thread __attribute__((tls_model("initial-exec"))) unsigned char my_number;

/* ---- threads ---- */

static unsigned draw_number(void)
{
	int me = (int)syscall(SYS_gettid), none;

	for (unsigned i = 0; i < NO_THREAD; i++) {
		none = 0;
		if (!load_relaxed(&thread_ids[i]) &&
		    atomic_compare_exchange_strong(&thread_ids[i], &none, me))
			return i;
	}
	return NO_THREAD;
}

unsigned uar_thread(void)
{
	if (unlikely(!my_number))
		my_number = (unsigned char)(draw_number() + 1);
	return my_number - 1u;
}

void uar_ignore_me(void)
{
	my_number = OURS;
}

/* Numbers of threads that ended. A new thread of the same id counts as the old one. */
static uint64_t dead_threads(void)
{
	uint64_t mask = 0;
	int saved = errno, id;

	for (unsigned i = 0; i < NO_THREAD; i++) {
		id = load_relaxed(&thread_ids[i]);
		if (id && syscall(SYS_tgkill, getpid(), id, 0) && errno == ESRCH)
			mask |= UINT64_C(1) << i;
	}
	errno = saved;
	return mask;
}

static void forget_threads(struct uar *u, uint64_t mask)
{
	struct reg *r;
	struct qp *q;

	rnice_uar_forget_threads(&u->plan, mask);
	for (q = u->ctx->qps; q; q = q->ctx_next) {
		atomic_fetch_and_explicit(&q->uar.threads, ~mask, memory_order_relaxed);
		if (mask >> load_relaxed(&q->uar.maker) & 1)
			store_relaxed(&q->uar.maker, NO_THREAD);
	}
	for (r = u->regs; r; r = r->next) {
		atomic_fetch_and_explicit(&r->threads, ~mask, memory_order_relaxed);
		uar_show(u, r);
	}
}

/* The bits go first: only then may somebody else get such a number. */
void uar_sweep_threads(void)
{
	static uint64_t last;
	uint64_t now = now_ns(), mask;
	struct uar *u;

	if (now - last < 100000000)
		return;
	last = now;
	mask = dead_threads();
	for (u = mask ? uar_all : NULL; u; u = u->next)
		forget_threads(u, mask);
	for (; mask; mask &= mask - 1)
		store_relaxed(&thread_ids[__builtin_ctzll(mask)], 0);
}

/* ---- registers ---- */

static uint32_t page_of(struct uar *u, const void *address)
{
	void *page = (void *)((uintptr_t)address & ~UINT64_C(4095));
	void **more;
	uint32_t i;

	for (i = 0; i < u->pages; i++)
		if (u->page[i] == page)
			return i;
	more = realloc(u->page, (u->pages + 1) * sizeof(*more));
	if (!more)
		return u->pages;
	u->page = more;
	u->page[u->pages] = page;
	return u->pages++;
}

static struct reg *new_reg(struct uar *u, void *address, bool reserved)
{
	struct reg *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->address = address;
	r->page = page_of(u, address);
	r->reserved = reserved;
	r->record = rnice_register_claim(u->ctx->dev->port);
	r->next = u->regs;
	u->regs = r;
	return r;
}

void uar_find_reg(struct qp *q)
{
	struct mlx5dv_qp info = {0};
	struct mlx5dv_obj obj = {.qp = {.in = q->ibv, .out = &info}};
	struct uar *u = q->ctx->uar;
	struct reg *r;

	if (u->init_obj(&obj, MLX5DV_OBJ_QP) || !info.bf.reg)
		return;
	for (r = u->regs; r; r = r->next)
		if (r->address == info.bf.reg)
			break;
	if (!r)
		r = new_reg(u, info.bf.reg, q->uar.door != NULL);
	if (!r)
		return;
	q->uar.reg = r;
	add_relaxed(&r->qps, 1);
	uar_show(u, r);
}

void uar_drop_reg(struct qp *q)
{
	struct uar *u = q->ctx->uar;
	struct reg **p, *r = q->uar.reg;

	q->uar.reg = NULL;
	if (!r || sub_relaxed(&r->qps, 1) > 1) {
		if (r)
			uar_show(u, r);
		return;
	}
	for (p = &u->regs; *p != r; p = &(*p)->next)
		;
	*p = r->next;
	rnice_register_release(u->ctx->dev->port, r->record);
	free(r);
}

void uar_free_regs(struct uar *u)
{
	struct reg *r;

	while ((r = u->regs)) {
		u->regs = r->next;
		rnice_register_release(u->ctx->dev->port, r->record);
		free(r);
	}
	free(u->page);
}

static struct rnice_register_stat describe(struct reg *r)
{
	return (struct rnice_register_stat){
		.page = r->page,
		.offset = (uintptr_t)r->address & 4095,
		.qps = load_relaxed(&r->qps),
		.threads = (uint32_t)__builtin_popcountll(load_relaxed(&r->threads)),
		.reserved = r->reserved,
	};
}

/* Of two that show at once, the one with the older news may come last: so look again. */
void uar_show(struct uar *u, struct reg *r)
{
	struct rnice_register_stat was, is = describe(r);

	do {
		was = is;
		rnice_register_show(u->ctx->dev->port, r->record, &was);
		is = describe(r);
	} while (was.qps != is.qps || was.threads != is.threads);
}

/* ---- posts ---- */

COLD static void learn(struct qp *q, unsigned me)
{
	uint64_t bit = UINT64_C(1) << me;
	struct uar *u = q->ctx->uar;
	struct reg *r = q->uar.reg;

	atomic_fetch_or_explicit(&q->uar.threads, bit, memory_order_relaxed);
	rnice_uar_posted(&u->plan, q->uar.door ? q->uar.door->index : RNICE_UAR_NATIVE,
			 load_relaxed(&q->uar.maker), me);
	if (!(atomic_fetch_or_explicit(&r->threads, bit, memory_order_relaxed) & bit))
		uar_show(u, r);
}

void uar_learn(struct qp *q)
{
	unsigned me;

	if (!q->uar.reg || my_number == OURS)
		return;
	me = uar_thread();
	if (unlikely(!(load_relaxed(&q->uar.threads) >> me & 1)))
		learn(q, me);
}

void uar_child(void)
{
	struct door *d;
	struct uar *u;
	struct qp *q;

	/* Whoever held a lock of the parent is not here. */
	for (u = uar_all; u; u = u->next) {
		u->programs = true; /* what it could reserve would be the parent's */
		for (uint32_t i = 0; i < u->plan.doors; i++) {
			d = u->door[i];
			store_relaxed(&d->lock, 0);
		}
		for (q = u->ctx->qps; q; q = q->ctx_next) {
			store_relaxed(&q->uar.sq, 0);
			store_relaxed(&q->uar.rq, 0);
			q->uar.reg = NULL; /* the segment's record is the parent's */
		}
	}
	uar_all = NULL;
	for (unsigned i = 0; i < NO_THREAD; i++)
		store_relaxed(&thread_ids[i], 0);
	my_number = 0;
}
