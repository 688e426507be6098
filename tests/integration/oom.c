/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * oom: a preloaded library finds no memory for its tables when QPs are made. The program gets its
 * QPs all the same, they work, and nothing is left behind of the attempt.
 *
 * The only program here that looks at its preload: calloc() fails for librnice alone, and what it
 * asks malloc() for says whether it believes that more and more QPs share a CQ.
 */
#include "verbs_util.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 64
#define TRIES 200
#define CONTEXTS 3
/* A table of 2^n entries of 16 bytes each behind 32 more (interpose/table.h). */
#define TABLE(entries) (32u + 16u * (entries))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);

static size_t fail_from; /* tables of this many bytes or more; 0: none */
static unsigned int failed;
static size_t largest;

static bool from_rnice(const void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && strstr(info.dli_fname, "librnice");
}

static bool is_table(size_t size)
{
	size_t entries = size / 16 - 2;

	return size % 16 == 0 && size >= TABLE(64) && !(entries & (entries - 1));
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	if (fail_from && n == 1 && size >= fail_from && is_table(size) &&
	    from_rnice(__builtin_return_address(0))) {
		failed++;
		errno = ENOMEM;
		return NULL;
	}
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	if (size > largest && from_rnice(__builtin_return_address(0)))
		largest = size;
	return __libc_malloc(size);
}

static struct {
	struct vu_dev dev;
	struct vu_cq cq;
	struct vu_mem mem;
} side[CONTEXTS];

static void open_side(int i, const char *name)
{
	vu_dev_open(&side[i].dev, name);
	vu_cq_create(&side[i].cq, &side[i].dev, DEPTH, NULL, VU_POLL_CQ, NULL);
	vu_mem_alloc(&side[i].mem, &side[i].dev, 4096, VU_ACCESS);
}

static void close_side(int i)
{
	vu_cq_destroy(&side[i].cq);
	vu_mem_free(&side[i].mem);
	vu_dev_close(&side[i].dev);
}

static void make(struct vu_qp *q, int i)
{
	struct ibv_qp_init_attr init = {.send_cq = side[i].cq.cq,
					.recv_cq = side[i].cq.cq,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	vu_qp_create(q, &side[i].dev, &init, VU_POST_MIXED);
}

static void write_once(struct vu_qp *q, int from, int to)
{
	struct ibv_sge sge = {(uintptr_t)side[from].mem.p, 4096, side[from].mem.mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 7, IBV_SEND_SIGNALED), *bad;

	vu_wr_remote(&wr, side[to].mem.p, side[to].mem.mr->rkey);
	for (int builders = 0; builders < 2; builders++) {
		vu_check(!vu_qp_post(q, &wr, &bad, builders), "posting");
		vu_cq_expect_ok(&side[from].cq, 7, "a WRITE");
	}
}

/* Many QPs, one after the other, for each of which there is no memory. */
static void try_often(int i)
{
	unsigned int before = failed;
	struct vu_qp q, peer;
	struct vu_link link = vu_link_default(&side[0].dev);

	for (int n = 0; n < TRIES; n++) {
		make(&q, i);
		if (!n) {
			make(&peer, 0);
			vu_connect(&side[i].dev, q.qp, &side[0].dev, peer.qp, &link);
			write_once(&q, i, 0);
			vu_qp_destroy(&peer);
		}
		vu_qp_destroy(&q);
	}
	vu_check(!from_rnice((const void *)ibv_create_qp) || failed - before >= TRIES,
		 "only %u of %d tables failed", failed - before, TRIES);
	vu_note("%u failed\n", failed - before);
}

/* The queue of a CQ's completions has room for what its QPs may flush: of one at a time. */
static void check_books(const char *what)
{
	vu_check(largest < 100000, "%s: %zu bytes for one QP", what, largest);
	vu_log("%s: ok\n", what);
}

static void no_number_table(void)
{
	vu_at("no table of QP numbers");
	fail_from = TABLE(64);
	try_often(1);
	fail_from = 0;
	check_books("no table of QP numbers");
}

/* Fill the table of all QPs until it has to grow; those of the contexts hold a third each. */
static void no_qp_table(void)
{
	static struct vu_qp some[TRIES];
	int n = 0;

	vu_at("no table of QPs");
	for (int i = 0; i < CONTEXTS; i++)
		make(&some[n++], i);
	fail_from = TABLE(128);
	failed = 0;
	largest = 0;
	while (!failed && n < 100) {
		make(&some[n], n % CONTEXTS);
		n++;
	}
	try_often(1);
	fail_from = 0;
	check_books("no table of QPs");
	while (n)
		vu_qp_destroy(&some[--n]);
}

int main(int argc, char **argv)
{
	vu_parse(argc, argv, "oom", "no memory for a preloaded library", NULL, 0);
	open_side(0, vu.dev);
	open_side(1, vu.peer_dev);
	open_side(2, vu.dev);
	for (int i = 0; i < CONTEXTS; i += 2) {
		struct vu_qp q; /* the table of all QPs exists */

		make(&q, i);
		vu_qp_destroy(&q);
	}
	no_number_table();
	no_qp_table();
	for (int i = 0; i < CONTEXTS; i++)
		close_side(i);
	return vu_pass("%d QPs without memory", 2 * TRIES);
}
