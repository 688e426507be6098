/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * server: lends memory to victims and hogs. Needs no CPU while they READ and WRITE it; for those
 * that SEND it reposts receives, woken by events. A client that goes away, killed or not, is
 * cleaned up when its socket closes. Runs until killed.
 */
#include "peer_util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 64

struct client {
	int fd;
	struct peer_offer offer;
	struct vu_cq cq;
	struct vu_qp qp;
	struct vu_mem mem;
};

static struct vu_dev dev;
static struct ibv_comp_channel *channel;
static struct client client[MAX_CLIENTS];
static unsigned int nclients;

static void post_recv(struct client *c)
{
	struct ibv_sge sge = {(uintptr_t)c->mem.p, c->offer.recv_len, c->mem.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = c->offer.recv_len ? 1 : 0}, *bad;

	ibv_post_recv(c->qp.qp, &wr, &bad); /* fails only when the client is about to go */
}

static void arm(struct client *c)
{
	vu_check(!ibv_req_notify_cq(c->cq.cq, 0), "ibv_req_notify_cq");
}

static void repost(struct client *c)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(c->cq.cq, 1, &wc) == 1)
		if (wc.status == IBV_WC_SUCCESS)
			post_recv(c);
}

static void create_qp(struct client *c)
{
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1,
						.max_recv_wr = c->offer.recvs + 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};

	vu_cq_create(&c->cq, &dev, (int)c->offer.recvs + 2, channel, VU_POLL_CQ, NULL);
	init.send_cq = init.recv_cq = c->cq.cq;
	vu_qp_create(&c->qp, &dev, &init, VU_POST_SEND);
}

static void welcome(int fd)
{
	struct vu_link link = vu_link_default(&dev);
	struct peer_grant grant;
	struct peer_offer offer;
	struct client *c;

	if (nclients == MAX_CLIENTS || !vu_get(fd, &offer, sizeof(offer))) {
		close(fd);
		return;
	}
	c = &client[nclients++];
	*c = (struct client){.fd = fd, .offer = offer};
	vu_mem_alloc(&c->mem, &dev, c->offer.bytes, VU_ACCESS);
	create_qp(c);
	grant.addr = vu_addr_of(&dev, c->qp.qp);
	grant.mem = (uintptr_t)c->mem.p;
	grant.rkey = c->mem.mr->rkey;
	vu_qp_to_init(&dev, c->qp.qp);
	vu_qp_to_rtr(&dev, c->qp.qp, &c->offer.addr, &link);
	vu_qp_to_rts(c->qp.qp, grant.addr.psn, &link);
	for (uint32_t i = 0; i < c->offer.recvs; i++)
		post_recv(c);
	arm(c);
	if (send(fd, &grant, sizeof(grant), MSG_NOSIGNAL) < 0)
		shutdown(fd, SHUT_RDWR); /* its end will be seen by poll() */
}

static void farewell(struct client *c)
{
	vu_qp_destroy(&c->qp);
	vu_cq_destroy(&c->cq);
	vu_mem_free(&c->mem);
	close(c->fd);
	nclients--;
	if (c != &client[nclients])
		*c = client[nclients]; /* keeps the array dense */
}

static void on_event(void)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		for (unsigned int i = 0; i < nclients; i++)
			if (client[i].cq.cq == cq) {
				arm(&client[i]);
				repost(&client[i]);
			}
	}
}

static void serve(int listener)
{
	struct pollfd p[MAX_CLIENTS + 2];
	unsigned int n = nclients;

	p[0] = (struct pollfd){.fd = listener, .events = POLLIN};
	p[1] = (struct pollfd){.fd = channel->fd, .events = POLLIN};
	for (unsigned int i = 0; i < n; i++)
		p[i + 2] = (struct pollfd){.fd = client[i].fd, .events = POLLIN};
	if (poll(p, n + 2, -1) < 0)
		return;
	if (p[1].revents)
		on_event();
	for (unsigned int i = n; i-- > 0;) /* clients never write again: readable means gone */
		if (p[i + 2].revents)
			farewell(&client[i]);
	if (p[0].revents)
		welcome(vu_accept(listener));
}

int main(int argc, char **argv)
{
	const char *path = "/tmp/rnice-test.sock";
	const struct vu_opt opts[] = {
		{"socket", VU_OPT_STR, &path, "unix socket to listen at"},
	};
	int listener;

	vu.timeout = 0; /* lives until it is killed */
	vu_parse(argc, argv, "server", "memory for victim and hog", opts, VU_ARRAY(opts));
	vu_dev_open(&dev, vu.peer_dev);
	channel = ibv_create_comp_channel(dev.ctx);
	vu_check(channel, "ibv_create_comp_channel: %s", strerror(errno));
	vu_check(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), "fcntl");
	listener = vu_listen(path);
	printf("ready\n");
	fflush(stdout);
	for (;;)
		serve(listener);
}
