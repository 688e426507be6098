/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire between victim or hog and the server that lends them memory: they meet at a unix socket,
 * exchange addresses, and keep the socket open as a sign of life.
 */
#ifndef PEER_UTIL_H
#define PEER_UTIL_H

#include "verbs_util.h"

struct peer_offer { /* from the client */
	struct vu_addr addr;
	uint64_t bytes; /* of memory wanted */
	uint32_t recvs; /* receives that the server keeps posted */
	uint32_t recv_len;
};

struct peer_grant { /* from the server */
	struct vu_addr addr;
	uint64_t mem;
	uint32_t rkey;
};

struct peer_client {
	struct vu_dev dev;
	struct vu_cq cq;
	struct vu_qp qp;
	struct vu_mem mem;
	struct peer_grant grant;
	struct ibv_comp_channel *channel; /* NULL unless @event */
	struct vu_rng rng;
	enum vu_post api;
	enum vu_poll poll;
	int fd;
};

struct peer_need {
	const char *socket;
	size_t bytes; /* local and remote memory */
	unsigned int depth;
	uint32_t recvs, recv_len;
	uint8_t traffic_class;
	bool event;
	const char *api, *poll; /* as vu_post_of(), vu_poll_of() know them */
};

void peer_connect(struct peer_client *c, const struct peer_need *need);
void peer_close(struct peer_client *c);
/* From here on SIGTERM asks for an early but orderly end: peer_stop becomes true. */
extern volatile bool peer_stop;
void peer_stop_on_sigterm(void);
/* Post or die, by what @api allows. */
void peer_post(struct peer_client *c, struct ibv_send_wr *wr);
/* At least one completion, polling or sleeping; the number got. Dies on a bad status. */
int peer_wait(struct peer_client *c, struct ibv_wc *wc, int n);

#endif
