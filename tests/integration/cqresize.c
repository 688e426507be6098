/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cqresize: ibv_resize_cq with entries in the CQ and with work under way. No entry may get lost,
 * doubled or out of order, and a CQ cannot become smaller than what is in it.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define DEPTH 64

static uint64_t rounds = 200;
static uint64_t posted, polled; /* wr_ids are consecutive */

static void post_some(struct vu_pair *p, unsigned int n, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)p->mem[0].p, len, p->mem[0].mr->lkey};
	struct ibv_send_wr wr;

	while (n--) {
		wr = vu_wr(IBV_WR_RDMA_WRITE, len ? &sge : NULL, posted++, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, p->mem[1].p, p->mem[1].mr->rkey);
		vu_must_post(p->qp[0].qp, &wr);
	}
}

static void take(struct vu_pair *p, int n, const char *what)
{
	struct ibv_wc wc[DEPTH];
	int k = vu_cq_collect(&p->scq[0], n, wc, 20);

	vu_check(k == n, "%s: %d of %d entries", what, k, n);
	for (int i = 0; i < n; i++, polled++)
		vu_check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == polled,
			 "%s: entry %d: %s, wr_id %" PRIu64 " instead of %" PRIu64, what, i,
			 ibv_wc_status_str(wc[i].status), wc[i].wr_id, polled);
}

static void empty(struct vu_pair *p, const char *what)
{
	struct ibv_wc wc;

	vu_check(!vu_cq_collect(&p->scq[0], 1, &wc, 0.02), "%s: an entry too many", what);
}

static int resize(struct vu_pair *p, int cqe)
{
	int err = ibv_resize_cq(p->scq[0].cq, cqe);

	/* How many more than asked for is the provider's choice, and no program may count on it. */
	vu_log("resize to %d: %d\n", cqe, err);
	if (!err)
		vu_check(p->scq[0].cq->cqe >= cqe, "resized to %d, but it has %d entries", cqe,
			 p->scq[0].cq->cqe);
	return err;
}

/* All entries are in the CQ before it changes its size. */
static void resize_full(struct vu_pair *p, int to)
{
	vu_at("resizing a CQ with entries");
	post_some(p, 20, 100);
	vu_sleep(0.1);
	vu_check(!resize(p, to), "resize to %d", to);
	take(p, 20, "after a resize");
	empty(p, "after a resize");
}

static void resize_too_small(struct vu_pair *p)
{
	int err;

	vu_at("resizing a CQ below its contents");
	post_some(p, 20, 100);
	vu_sleep(0.1);
	err = resize(p, 5);
	vu_check(err, "20 entries in a CQ resized to 5");
	take(p, 20, "after a refused resize");
	empty(p, "after a refused resize");
}

static void resize_partly_polled(struct vu_pair *p)
{
	vu_at("resizing a CQ with polled and unpolled entries");
	post_some(p, 30, 100);
	vu_sleep(0.1);
	take(p, 17, "before a resize");
	vu_check(!resize(p, 40), "resize to 40");
	take(p, 13, "after a resize");
}

/* Large WRITEs are on their way, their completions still to come. */
static void resize_under_way(struct vu_pair *p, struct vu_rng *r)
{
	static const int sizes[] = {DEPTH, 100, 200, 500};

	vu_at("resizing a CQ under load");
	for (uint64_t i = 0; i < rounds; i++) {
		unsigned int n = (unsigned int)vu_range(r, 1, 16);

		post_some(p, n, (uint32_t)vu_range(r, 0, vu_chance(r, 10) ? 300000 : 3000));
		if (vu_chance(r, 30))
			vu_check(!ibv_resize_cq(p->scq[0].cq, sizes[vu_below(r, VU_ARRAY(sizes))]),
				 "resize under load");
		take(p, (int)n, "under load");
	}
	empty(p, "under load");
}

/* As many entries as the CQ says it has, none of them polled before the last is there. */
static void fill_to_the_brim(int cqe)
{
	struct vu_pair_spec spec = {.mem = 1u << 20, .send_wr = 1000, .recv_wr = 1, .cqe = cqe};
	struct vu_pair p;
	int n;

	vu_at("filling a CQ");
	posted = polled = 0;
	vu_pair_open(&p, &spec);
	n = p.scq[0].cq->cqe;
	if (n <= 1000) {
		post_some(&p, (unsigned int)n, 9000);
		vu_sleep(0.3);
		for (int left = n; left; left -= left < DEPTH ? left : DEPTH)
			take(&p, left < DEPTH ? left : DEPTH, "a full CQ");
		empty(&p, "a full CQ");
	}
	vu_pair_close(&p);
}

int main(int argc, char **argv)
{
	const struct vu_opt opts[] = {
		{"rounds", VU_OPT_NUM, &rounds, "batches of the resize under load"},
	};
	struct vu_pair_spec spec = {.mem = 1u << 20, .send_wr = DEPTH, .recv_wr = 1, .cqe = DEPTH};
	struct vu_rng r;
	struct vu_pair p;

	vu_parse(argc, argv, "cqresize", "resizing completion queues", opts, VU_ARRAY(opts));
	r.state = vu.seed;
	vu_pair_open(&p, &spec);
	if (ibv_resize_cq(p.scq[0].cq, DEPTH) == EOPNOTSUPP) {
		vu_pair_close(&p);
		return vu_pass("skipped: the device cannot resize a CQ");
	}
	resize_full(&p, 200);
	resize_full(&p, 25);
	resize_too_small(&p);
	resize_full(&p, DEPTH);
	resize_partly_polled(&p);
	vu_check(!resize(&p, 0) || errno, "resize to 0");
	vu_check(!resize(&p, DEPTH), "resize back");
	resize_under_way(&p, &r);
	vu_pair_close(&p);
	for (int cqe = 1; cqe <= 256; cqe *= 4)
		fill_to_the_brim(cqe);
	return vu_pass("CQs resized, and filled");
}
