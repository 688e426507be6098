/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer_util.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void create_client_qp(struct peer_client *c, const struct peer_need *need)
{
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = need->depth,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	if (need->event) {
		c->channel = ibv_create_comp_channel(c->dev.ctx);
		vu_check(c->channel, "ibv_create_comp_channel: %s", strerror(errno));
	}
	vu_cq_create(&c->cq, &c->dev, (int)need->depth + 1, c->channel, c->poll, NULL);
	init.send_cq = init.recv_cq = c->cq.cq;
	vu_qp_create(&c->qp, &c->dev, &init, c->api);
}

void peer_connect(struct peer_client *c, const struct peer_need *need)
{
	struct peer_offer offer = {
		.bytes = need->bytes, .recvs = need->recvs, .recv_len = need->recv_len};
	struct vu_link link;

	memset(c, 0, sizeof(*c));
	c->api = vu_post_of(need->api);
	c->poll = vu_poll_of(need->poll);
	c->rng.state = vu.seed;
	vu_dev_open(&c->dev, vu.dev);
	link = vu_link_default(&c->dev);
	link.timeout = 18; /* 1 s: kills lose packets, and nobody shall stand still for long */
	link.traffic_class = need->traffic_class;
	vu_mem_alloc(&c->mem, &c->dev, need->bytes, VU_ACCESS);
	create_client_qp(c, need);
	offer.addr = vu_addr_of(&c->dev, c->qp.qp);
	c->fd = vu_dial(need->socket, 20);
	vu_put(c->fd, &offer, sizeof(offer));
	vu_check(vu_get(c->fd, &c->grant, sizeof(c->grant)), "the server hung up");
	vu_qp_to_init(&c->dev, c->qp.qp);
	vu_qp_to_rtr(&c->dev, c->qp.qp, &c->grant.addr, &link);
	vu_qp_to_rts(c->qp.qp, offer.addr.psn, &link);
}

void peer_close(struct peer_client *c)
{
	vu_qp_destroy(&c->qp);
	vu_cq_destroy(&c->cq);
	if (c->channel)
		vu_check(!ibv_destroy_comp_channel(c->channel), "ibv_destroy_comp_channel");
	vu_mem_free(&c->mem);
	vu_dev_close(&c->dev);
	close(c->fd);
}

volatile bool peer_stop;

static void on_sigterm(int sig)
{
	(void)sig;
	peer_stop = true;
}

void peer_stop_on_sigterm(void)
{
	struct sigaction sa = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};

	sigemptyset(&sa.sa_mask);
	sigaction(SIGTERM, &sa, NULL);
}

static void sleep_for_event(struct peer_client *c)
{
	struct ibv_cq *cq;
	void *context;

	vu_check(!ibv_get_cq_event(c->channel, &cq, &context), "ibv_get_cq_event: %s",
		 strerror(errno));
	ibv_ack_cq_events(cq, 1);
}

void peer_post(struct peer_client *c, struct ibv_send_wr *wr)
{
	bool builders = c->api == VU_POST_WR || (c->api == VU_POST_MIXED && vu_chance(&c->rng, 50));
	struct ibv_send_wr *bad;
	int err = vu_qp_post(&c->qp, wr, &bad, builders);

	vu_check(!err, "posting: %s", strerror(err));
}

int peer_wait(struct peer_client *c, struct ibv_wc *wc, int n)
{
	bool armed = false;
	int k;

	while (!(k = vu_cq_poll(&c->cq, n, wc, vu_poll_ex(c->poll, &c->rng)))) {
		if (!c->channel)
			continue;
		if (armed)
			sleep_for_event(c);
		else
			vu_check(!ibv_req_notify_cq(c->cq.cq, 0), "ibv_req_notify_cq");
		armed = !armed;
	}
	vu_check(k > 0, "polling: %d", k);
	for (int i = 0; i < k; i++)
		vu_check(wc[i].status == IBV_WC_SUCCESS, "completion: %s",
			 ibv_wc_status_str(wc[i].status));
	return k;
}
