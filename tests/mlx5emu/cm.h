/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm: identifiers and events in the shared segment, used by cm.c and cmconn.c only.
 *
 * Layouts and commands: rdma/rdma_user_cm.h (kernel uapi). Everything in struct emu_cm is covered
 * by seg->lock. Events for an identifier are put into a pool by whoever causes them and moved to
 * the identifier's channel by the NIC thread of the process that owns it.
 */
#ifndef MLX5EMU_CM_H
#define MLX5EMU_CM_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include "emu.h"

/* Event numbers of rdma/rdma_cma.h, which cannot be included next to the uapi header. */
enum {
	RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
	RDMA_CM_EVENT_UNREACHABLE = 7,
	RDMA_CM_EVENT_REJECTED = 8,
	RDMA_CM_EVENT_ESTABLISHED = 9,
	RDMA_CM_EVENT_DISCONNECTED = 10,
	RDMA_CM_EVENT_MULTICAST_JOIN = 12,
};

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTEN,
	CM_RESOLVED,
	CM_CONNECTING, /* active: request sent; passive: request to be answered */
	CM_ACCEPTED,   /* passive: answered, waiting for the active side */
	CM_CONNECTED,
	CM_CLOSED,
};

struct cm_id {
	uint32_t used; /* 0 or 1 */
	uint32_t proc;
	uint64_t uid;
	uint64_t queue; /* struct emu_queue *, valid in the owner */
	uint32_t ps, qp_type;
	uint32_t state;
	uint32_t passive;
	int32_t dev, peer_dev; /* -1: none yet */
	int32_t peer;	       /* the other identifier */
	int32_t listener;
	struct sockaddr_in6 src, dst; /* or sockaddr_in */
	uint16_t port;
	uint8_t reuse, tos, ack_timeout;
	uint32_t routed;
	uint32_t qpn, peer_qpn;
	uint32_t responder_resources, initiator_depth;
	uint32_t retry_count, rnr_retry;
	uint32_t events_read;
	/* a multicast membership is an identifier of its own */
	int32_t member_of;
};

struct cm_event {
	uint32_t used;
	uint32_t proc;
	uint32_t id; /* whose channel it goes to */
	uint32_t mc; /* 1 + the membership that counts it too */
	uint64_t seq;
	struct rdma_ucm_event_resp resp;
};

struct emu_cm {
	struct cm_id id[EMU_CMIDS];
	struct cm_event ev[EMU_CMEVS];
	_Atomic uint32_t pending[EMU_PROCS];
	uint64_t next_seq;
	uint32_t next_id;
	uint16_t next_port;
};
_Static_assert(sizeof(struct emu_cm) <= EMU_CM_BYTES, "the segment has too little room");

static inline struct emu_cm *cm_table(void)
{
	return (struct emu_cm *)self.seg->cm;
}

static inline struct cm_event *cm_event_of(struct rdma_ucm_event_resp *r)
{
	return (struct cm_event *)((char *)r - offsetof(struct cm_event, resp));
}

/* cm.c; all of these with seg->lock held */
struct cm_id *cm_new(uint32_t proc, uint64_t uid, uint64_t queue, uint32_t ps, uint32_t qp_type);
void cm_free(struct cm_id *id);
struct rdma_ucm_event_resp *cm_post(struct cm_id *id, uint32_t event, int status);
struct cm_id *cm_get(uint32_t id); /* of this process, or NULL */
uint32_t cm_num(const struct cm_id *id);
int cm_bind_port(struct cm_id *id, uint16_t port);
int cm_addr_dev(const struct sockaddr_in6 *a);
uint16_t *cm_port_of(struct sockaddr_in6 *a);
void cm_purge(struct cm_id *id);

/* cmconn.c; with seg->lock held */
int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p);
bool cm_too_early(const struct cm_id *id);
int cm_accept(struct cm_id *id, uint64_t uid, const struct rdma_ucm_conn_param *p);
int cm_reject(struct cm_id *id, const struct rdma_ucm_reject *r);
void cm_disconnect(struct cm_id *id);
int cm_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *a);
int cm_join(struct cm_id *id, uint64_t uid, const struct sockaddr_in6 *addr, uint32_t *num);
void cm_ah_attr(const struct cm_id *id, int peer_dev, struct ib_uverbs_ah_attr *ah);

#endif
