/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * overlong: lists of WRs that do not fit into the send queue, by ibv_post_send() on a QP made for
 * ibv_wr_*. The first WRs of a list are taken, *bad_wr is the next, and small and large lists
 * follow one another, so that a class that goes by the size changes its mind.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define DEPTH 32
#define LONGEST 300

static uint64_t rounds = 40, max_size = 100000;
static uint64_t posted, polled; /* wr_ids are consecutive */
static enum vu_post api = VU_POST_MIXED;

/* How many of @n WRs of @len bytes were taken. */
static uint32_t post_list(struct vu_pair *p, uint32_t n, uint32_t len)
{
	static struct ibv_send_wr wr[LONGEST];
	static struct ibv_sge sge[LONGEST];
	struct ibv_send_wr *bad = NULL;
	uint32_t taken;
	int err;

	for (uint32_t i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)p->mem[0].p, len, p->mem[0].mr->lkey};
		wr[i] = vu_wr(IBV_WR_RDMA_WRITE, &sge[i], posted + i, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr[i], p->mem[1].p, p->mem[1].mr->rkey);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	err = ibv_post_send(p->qp[0].qp, wr, &bad);
	vu_check(!err || err == ENOMEM, "posting %u WRs: %s", n, strerror(err));
	taken = err ? (uint32_t)(bad - wr) : n;
	vu_check(taken <= n, "*bad_wr is none of the list's");
	posted += taken;
	return taken;
}

static void take(struct vu_pair *p, uint64_t upto)
{
	struct ibv_wc wc;

	for (; polled < upto; polled++) {
		vu_check(vu_cq_collect(&p->scq[0], 1, &wc, 20) == 1,
			 "no completion of WR %" PRIu64 " of %" PRIu64, polled, posted);
		vu_check(wc.status == IBV_WC_SUCCESS && wc.wr_id == polled,
			 "%s, wr_id %" PRIu64 " instead of %" PRIu64, ibv_wc_status_str(wc.status),
			 wc.wr_id, polled);
	}
}

/* ---- queues that are filled until they refuse, on a CQ that holds just that ---- */

#define QPS 12

static uint32_t make_qps(struct vu_pair *p, struct vu_qp *q, struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = p->rcq[0].cq,
					.cap = {.max_send_wr = depth,
						.max_send_sge = 1,
						.max_recv_wr = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	uint32_t sum = 0;

	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr mine = init;

		vu_qp_create(&q[i], &p->dev[0], &mine, api);
		sum += q[i].cap.max_send_wr;
	}
	return sum;
}

/* Not by ibv_wr_*: libmlx5 44 builds on when the queue is full. */
static uint32_t fill(struct vu_pair *p, struct vu_qp *q)
{
	struct ibv_sge sge = {(uintptr_t)p->mem[0].p, 64, p->mem[0].mr->lkey};
	struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_SIGNALED), *bad;
	uint32_t n = 0;

	vu_wr_remote(&wr, p->mem[1].p, p->mem[1].mr->rkey);
	while (!ibv_post_send(q->qp, &wr, &bad))
		n++;
	return n;
}

/* Nobody polls before all are full, and the completions are there. */
static void tiny_queues(struct vu_pair *p, uint32_t depth)
{
	struct vu_qp q[QPS], peer[QPS];
	struct vu_cq cq;
	struct ibv_wc wc;
	uint32_t granted, n = 0;

	vu_at("filling small queues");
	granted = make_qps(p, q, p->scq[0].cq, depth);
	for (int i = 0; i < QPS; i++)
		vu_qp_destroy(&q[i]);
	vu_cq_create(&cq, &p->dev[0], (int)granted, NULL, VU_POLL_CQ, NULL);
	make_qps(p, q, cq.cq, depth);
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = {.send_cq = p->rcq[1].cq,
						.recv_cq = p->rcq[1].cq,
						.cap = {.max_send_wr = 1,
							.max_recv_wr = 1,
							.max_send_sge = 1,
							.max_recv_sge = 1},
						.qp_type = IBV_QPT_RC};

		vu_qp_create(&peer[i], &p->dev[1], &init, VU_POST_SEND);
		vu_connect(&p->dev[0], q[i].qp, &p->dev[1], peer[i].qp, &p->link);
	}
	for (int i = 0; i < QPS; i++)
		n += fill(p, &q[i]);
	vu_sleep(0.05);
	for (uint32_t i = 0; i < n; i++)
		vu_check(vu_cq_collect(&cq, 1, &wc, 20) == 1 && wc.status == IBV_WC_SUCCESS,
			 "depth %u: %u of %u completed", depth, i, n);
	vu_note("depth %u: %u granted to %d QPs, %u posted\n", depth, granted, QPS, n);
	for (int i = 0; i < QPS; i++) {
		vu_qp_destroy(&q[i]);
		vu_qp_destroy(&peer[i]);
	}
	vu_cq_destroy(&cq);
	vu_log("%d QPs of depth %u\n", QPS, depth);
}

int main(int argc, char **argv)
{
	const char *api_name = "mixed";
	const struct vu_opt opts[] = {
		{"api", VU_OPT_STR, &api_name, "what the QP is made for: send or wr"},
		{"rounds", VU_OPT_NUM, &rounds, "of lists"},
		{"max-size", VU_OPT_NUM, &max_size, "bytes of a large WRITE"},
	};
	struct vu_pair_spec spec = {.recv_wr = 1, .send_wr = DEPTH, .cqe = 4 * DEPTH};
	struct vu_rng r;
	struct vu_pair p;
	uint32_t taken;

	vu_parse(argc, argv, "overlong", "lists that do not fit", opts, VU_ARRAY(opts));
	api = vu_post_of(api_name);
	spec.post = api;
	spec.mem = max_size;
	r.state = vu.seed;
	vu_pair_open(&p, &spec);
	vu_fill(p.mem[0].p, p.mem[0].len, vu.seed);
	for (uint64_t i = 0; i < rounds; i++) {
		uint32_t some = (uint32_t)vu_below(&r, DEPTH);

		vu_at("small WRITEs");
		if (some)
			post_list(&p, some, 64);
		taken = post_list(&p, (uint32_t)vu_range(&r, DEPTH, LONGEST), 64);
		vu_check(some + taken >= DEPTH, "only %u WRs were taken", some + taken);
		if (vu_chance(&r, 50))
			take(&p, polled + vu_below(&r, posted - polled));
		else
			take(&p, posted);
		vu_at("large WRITEs");
		for (int k = 0; k < 3; k++)
			while (!post_list(&p, 1, (uint32_t)max_size))
				take(&p, polled + 1);
		take(&p, posted);
		vu_check(!memcmp(p.mem[0].p, p.mem[1].p, max_size), "wrong bytes");
	}
	vu_log("%" PRIu64 " rounds\n", rounds);
	for (uint32_t depth = 1; depth <= DEPTH; depth *= 2)
		tiny_queues(&p, depth);
	vu_pair_close(&p);
	return vu_pass("%" PRIu64 " WRs", posted);
}
