/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * teardown: objects destroyed in any order. What is still needed by another object must stay, with
 * the same error as natively, and work as before; what is destroyed with work under way, with
 * completions nobody polled or with events nobody acknowledged must go. The peer lives on
 * throughout.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (4u << 20)
#define PAIRS 2 /* QPs on one send CQ */

enum object { CHANNEL, PD, MR, SRQ, SEND_CQ, RECV_CQ, QP, OBJECTS = QP + PAIRS };

static const char *const name[OBJECTS] = {"channel", "pd",	"mr",	"srq",
					  "send cq", "recv cq", "qp 0", "qp 1"};

static uint64_t rounds = 60;

struct world {
	struct vu_dev dev;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct vu_cq scq, rcq;
	struct vu_mem mem;
	struct vu_qp qp[PAIRS], peer_qp[PAIRS];
	bool alive[OBJECTS];
	unsigned int unacked;
};

static struct vu_dev peer;
static struct vu_cq peer_cq;
static struct vu_mem peer_mem;

static void open_world(struct world *w, struct vu_rng *r)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct vu_link link;

	*w = (struct world){0};
	vu_dev_open(&w->dev, vu.dev);
	link = vu_link_default(&w->dev);
	w->channel = ibv_create_comp_channel(w->dev.ctx);
	w->srq = ibv_create_srq(w->dev.pd, &srq);
	vu_check(w->channel && w->srq, "channel or srq: %s", strerror(errno));
	vu_mem_alloc(&w->mem, &w->dev, BYTES, VU_ACCESS);
	vu_cq_create(&w->scq, &w->dev, 64, w->channel, VU_POLL_CQ, NULL);
	vu_cq_create(&w->rcq, &w->dev, 64, NULL, VU_POLL_CQ, NULL);
	for (int i = 0; i < PAIRS; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = w->scq.cq,
			.recv_cq = w->rcq.cq,
			.srq = w->srq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 16, .max_send_sge = 1},
		};

		vu_qp_create(&w->qp[i], &w->dev, &init,
			     vu_chance(r, 50) ? VU_POST_SEND : VU_POST_WR);
		init.send_cq = init.recv_cq = peer_cq.cq;
		init.srq = NULL;
		vu_qp_create(&w->peer_qp[i], &peer, &init, VU_POST_SEND);
		vu_connect(&w->dev, w->qp[i].qp, &peer, w->peer_qp[i].qp, &link);
	}
	memset(w->alive, true, sizeof(w->alive));
}

static void write_some(struct world *w, int i, unsigned int n, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)w->mem.p, len, w->mem.mr->lkey};

	while (n--) {
		struct ibv_send_wr wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, len, IBV_SEND_SIGNALED),
				   *bad;

		vu_wr_remote(&wr, peer_mem.p, peer_mem.mr->rkey);
		vu_check(!vu_qp_post(&w->qp[i], &wr, &bad, w->qp[i].ex != NULL), "post");
	}
}

/* What each QP is in the middle of when the end comes. */
static void prepare(struct world *w, struct vu_rng *r)
{
	static const char *const states[] = {"idle", "unpolled", "under way", "in error", "event"};
	struct ibv_wc wc[16];
	struct ibv_cq *cq;
	void *ctx;

	for (int i = 0; i < PAIRS; i++) {
		uint64_t state = vu_below(r, VU_ARRAY(states) - (i > 0));

		vu_log(" %s", states[state]);
		switch (state) {
		case 0:
			write_some(w, i, 3, 100);
			vu_check(vu_cq_collect(&w->scq, 3, wc, 20) == 3, "three WRITEs");
			break;
		case 1:
			write_some(w, i, 3, 100);
			vu_sleep(0.01);
			break;
		case 2:
			write_some(w, i, (unsigned int)vu_range(r, 1, 15), BYTES);
			break;
		case 3:
			write_some(w, i, 4, BYTES / 4);
			vu_check(!vu_qp_to_state(w->qp[i].qp, IBV_QPS_ERR), "to ERR");
			break;
		default:
			vu_check(!ibv_req_notify_cq(w->scq.cq, 0), "req_notify_cq");
			write_some(w, i, 1, 100);
			vu_check(!ibv_get_cq_event(w->channel, &cq, &ctx), "get_cq_event");
			w->unacked++;
		}
	}
	vu_log(":");
}

static int destroy(struct world *w, enum object o)
{
	switch (o) {
	case CHANNEL:
		return ibv_destroy_comp_channel(w->channel);
	case PD:
		return ibv_dealloc_pd(w->dev.pd);
	case MR:
		return ibv_dereg_mr(w->mem.mr);
	case SRQ:
		return ibv_destroy_srq(w->srq);
	case SEND_CQ:
		return ibv_destroy_cq(w->scq.cq);
	case RECV_CQ:
		return ibv_destroy_cq(w->rcq.cq);
	default:
		return ibv_destroy_qp(w->qp[o - QP].qp);
	}
}

/* Another thread than the one that destroys the CQ, which waits for it. */
static void *ack_later(void *arg)
{
	struct world *w = arg;

	vu_sleep(0.02);
	ibv_ack_cq_events(w->scq.cq, w->unacked);
	return NULL;
}

/* After a refusal: does what refused still work? */
static void use(struct world *w)
{
	struct ibv_wc wc;

	for (int i = 0; i < PAIRS; i++) {
		if (!w->alive[QP + i] || !w->alive[MR] || vu_qp_state(w->qp[i].qp) != IBV_QPS_RTS)
			continue;
		while (ibv_poll_cq(w->scq.cq, 1, &wc) > 0)
			;
		write_some(w, i, 1, 10);
		do
			vu_check(vu_cq_collect(&w->scq, 1, &wc, 60) == 1,
				 "a refused destroy broke qp %d", i);
		while (wc.qp_num != w->qp[i].qp->qp_num || wc.wr_id != 10);
	}
}

static void end(struct world *w, struct vu_rng *r)
{
	enum object order[OBJECTS];
	pthread_t acker;
	unsigned int left = OBJECTS;

	for (unsigned int i = 0; i < OBJECTS; i++) {
		uint64_t j = vu_below(r, i + 1);

		order[i] = order[j];
		order[j] = (enum object)i;
	}
	while (left) {
		unsigned int before = left;

		for (unsigned int i = 0; i < OBJECTS; i++) {
			bool ack = order[i] == SEND_CQ && w->unacked && !w->alive[QP] &&
				   !w->alive[QP + 1];
			int err;

			if (!w->alive[order[i]])
				continue;
			if (ack)
				pthread_create(&acker, NULL, ack_later, w);
			err = destroy(w, order[i]);
			if (ack)
				pthread_join(acker, NULL);
			vu_log(" %s %d", name[order[i]], err);
			if (err) {
				use(w);
				continue;
			}
			w->alive[order[i]] = false;
			left--;
		}
		vu_check(left < before, "nothing can be destroyed any more");
	}
	vu_log("\n");
	free(w->mem.p);
	for (int i = 0; i < PAIRS; i++)
		vu_qp_destroy(&w->peer_qp[i]);
	vu_check(!ibv_close_device(w->dev.ctx), "close_device");
}

int main(int argc, char **argv)
{
	static const struct vu_opt opts[] = {
		{"rounds", VU_OPT_NUM, &rounds, "worlds to build and to tear down (60)"},
	};
	struct vu_rng r;
	struct world w;

	vu_parse(argc, argv, "teardown", "objects destroyed in any order", opts, VU_ARRAY(opts));
	r.state = vu.seed;
	vu_dev_open(&peer, vu.peer_dev);
	vu_cq_create(&peer_cq, &peer, 16, NULL, VU_POLL_CQ, NULL);
	vu_mem_alloc(&peer_mem, &peer, BYTES, VU_ACCESS);
	for (uint64_t i = 0; i < rounds; i++) {
		vu_at("building a world");
		open_world(&w, &r);
		prepare(&w, &r);
		vu_at("tearing it down");
		end(&w, &r);
	}
	return vu_pass("%" PRIu64 " worlds torn down", rounds);
}
