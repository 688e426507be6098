/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * complaint: WRs with a fence, which the provider takes though it returns an error (it does if
 * tests/emulated/complains.c is preloaded behind rnice). Each WR completes once, in order.
 */
#include "verbs_util.h"

#include <inttypes.h>

#define WRS 60

static void post(struct vu_pair *p, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)p->mem[0].p, 64, p->mem[0].mr->lkey};
	unsigned int fence = id % 3 ? 0 : IBV_SEND_FENCE;
	struct ibv_send_wr wr, *bad;

	wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, id, IBV_SEND_SIGNALED | fence);
	vu_wr_remote(&wr, p->mem[1].p, p->mem[1].mr->rkey);
	vu_check(!ibv_post_send(p->qp[0].qp, &wr, &bad) || fence, "WR %" PRIu64 " refused", id);
}

int main(int argc, char **argv)
{
	struct vu_pair_spec spec = {.recv_wr = 1, .send_wr = WRS, .cqe = WRS, .mem = 64};
	struct vu_pair p;

	vu_parse(argc, argv, "complaint", "WRs that are taken with an error", NULL, 0);
	vu_pair_open(&p, &spec);
	for (uint64_t id = 0; id < WRS; id++)
		post(&p, id);
	for (uint64_t id = 0; id < WRS; id++)
		vu_cq_expect_ok(&p.scq[0], id, "a WR");
	vu_pair_close(&p);
	return vu_pass("%d WRs", WRS);
}
