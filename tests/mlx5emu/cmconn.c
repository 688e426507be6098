/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm connections: request, reply, reject, disconnect, QP attributes, multicast.
 *
 * The exchange follows the InfiniBand communication manager (volume 1, chapter 12): a request
 * names initiator depth and responder resources from the sender's side, so they change places on
 * the way; private data arrives in a field of fixed size.
 */
#include <arpa/inet.h>

#include "cm.h"

enum {
	REQ_DATA = 56, /* 92 bytes of the request less 36 of the IP header in front */
	REP_DATA = 196,
	REJ_DATA = 148,
	SIDR_REQ_DATA = 180,
	SIDR_REP_DATA = 136,
	REJ_INVALID_SERVICE = 8,
	REJ_CONSUMER = 28,
	SIDR_UNSUPPORTED = 1,
	SIDR_REJECT = 2,
	UDP_QKEY = 0x01234567,
};

static bool is_ud(const struct cm_id *id)
{
	return id->qp_type == IBV_QPT_UD;
}

void cm_ah_attr(const struct cm_id *id, int peer_dev, struct ib_uverbs_ah_attr *ah)
{
	bool eth = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET;

	memset(ah, 0, sizeof(*ah));
	dev_gid(peer_dev, eth ? 3 : 0, ah->grh.dgid);
	ah->grh.sgid_index = eth ? 3 : 0;
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = id->tos;
	ah->dlid = eth ? 0 : dev_lid(peer_dev);
	ah->is_global = eth;
	ah->port_num = 1;
}

static void put_conn(struct rdma_ucm_event_resp *r, const struct rdma_ucm_conn_param *p,
		     uint8_t room)
{
	struct rdma_ucm_conn_param *c = &r->param.conn;

	*c = *p;
	c->initiator_depth = p->responder_resources;
	c->responder_resources = p->initiator_depth;
	memset(c->private_data + p->private_data_len, 0,
	       sizeof(c->private_data) - p->private_data_len);
	c->private_data_len = room;
}

static void put_ud(struct rdma_ucm_event_resp *r, const struct cm_id *to, const struct cm_id *from,
		   const struct rdma_ucm_conn_param *p, uint8_t room)
{
	struct rdma_ucm_ud_param *u = &r->param.ud;

	u->qp_num = p->qp_num;
	u->qkey = UDP_QKEY;
	cm_ah_attr(to, from->dev, &u->ah_attr);
	memcpy(u->private_data, p->private_data, p->private_data_len);
	u->private_data_len = room;
}

static struct cm_id *find(const struct cm_id *id, uint32_t state)
{
	struct emu_cm *cm = cm_table();
	uint16_t port = ntohs(id->dst.sin6_port);
	uint32_t i;

	for (i = 0; i < EMU_CMIDS; i++) {
		struct cm_id *l = &cm->id[i];

		if (l->used && l->state == state && l->ps == id->ps && l->port == port && l != id &&
		    (l->dev < 0 || l->dev == id->peer_dev) && shm_alive_lately(l->proc))
			return l;
	}
	return NULL;
}

/*
 * A server that has told its port but does not listen yet: on a network the request would still be
 * under way (qperf counts on that).
 */
bool cm_too_early(const struct cm_id *id)
{
	return id->state == CM_RESOLVED && !find(id, CM_LISTEN) && find(id, CM_BOUND);
}

static struct cm_id *passive_side(struct cm_id *active, struct cm_id *l)
{
	struct cm_id *p = cm_new(l->proc, 0, l->queue, l->ps, l->qp_type);

	if (!p)
		return NULL;
	p->passive = 1;
	p->state = CM_CONNECTING;
	p->listener = cm_num(l);
	p->dev = active->peer_dev;
	p->peer_dev = active->dev;
	p->src = active->dst;
	p->dst = active->src;
	p->port = l->port;
	p->peer = cm_num(active);
	active->peer = cm_num(p);
	return p;
}

static int no_listener(struct cm_id *id)
{
	struct rdma_ucm_conn_param none = {0};
	struct rdma_ucm_event_resp *r;

	id->state = CM_RESOLVED;
	if (is_ud(id)) {
		cm_post(id, RDMA_CM_EVENT_UNREACHABLE, SIDR_UNSUPPORTED);
		return 0;
	}
	r = cm_post(id, RDMA_CM_EVENT_REJECTED, REJ_INVALID_SERVICE);
	put_conn(r, &none, REJ_DATA);
	return 0;
}

int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p)
{
	struct rdma_ucm_event_resp *r;
	struct cm_id *l, *passive;
	uint32_t room = is_ud(id) ? SIDR_REQ_DATA : REQ_DATA;

	if (id->state != CM_RESOLVED || !id->routed || p->private_data_len > room)
		return EINVAL;
	id->qpn = p->qp_num;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	id->retry_count = p->retry_count & 7;
	id->rnr_retry = p->rnr_retry_count & 7;
	id->state = CM_CONNECTING;
	l = find(id, CM_LISTEN);
	passive = l ? passive_side(id, l) : NULL;
	if (!passive)
		return no_listener(id);
	passive->peer_qpn = p->qp_num;
	passive->responder_resources = p->initiator_depth;
	passive->initiator_depth = p->responder_resources;
	/* The requester's wishes bind the responder too. */
	passive->retry_count = id->retry_count;
	passive->rnr_retry = id->rnr_retry;
	r = cm_post(l, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	r->id = cm_num(passive);
	if (is_ud(id))
		put_ud(r, passive, id, p, room);
	else
		put_conn(r, p, room);
	return 0;
}

static int accept_passive(struct cm_id *id, const struct rdma_ucm_conn_param *p)
{
	uint32_t room = is_ud(id) ? SIDR_REP_DATA : REP_DATA;
	struct rdma_ucm_event_resp *r;
	struct cm_id *active;

	if (id->peer < 0 || p->private_data_len > room)
		return EINVAL;
	active = &cm_table()->id[id->peer];
	id->qpn = p->qp_num;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	active->peer_qpn = p->qp_num;
	if (is_ud(id)) {
		id->state = active->state = CM_CLOSED; /* a datagram exchange leaves nothing */
		r = cm_post(active, RDMA_CM_EVENT_ESTABLISHED, 0);
		put_ud(r, active, id, p, room);
		return 0;
	}
	active->rnr_retry = p->rnr_retry_count & 7;
	active->responder_resources = p->initiator_depth < active->responder_resources
					      ? p->initiator_depth
					      : active->responder_resources;
	active->initiator_depth = p->responder_resources < active->initiator_depth
					  ? p->responder_resources
					  : active->initiator_depth;
	id->state = CM_ACCEPTED;
	r = cm_post(active, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	put_conn(r, p, room);
	return 0;
}

int cm_accept(struct cm_id *id, uint64_t uid, const struct rdma_ucm_conn_param *p)
{
	struct cm_id *peer = id->peer >= 0 ? &cm_table()->id[id->peer] : NULL;

	if (id->passive && id->state == CM_CONNECTING) {
		id->uid = uid;
		return accept_passive(id, p);
	}
	if (id->passive || id->state != CM_CONNECTING || !peer)
		return EINVAL;
	id->state = CM_CONNECTED; /* the active side is ready to use */
	if (peer->state == CM_ACCEPTED) {
		peer->state = CM_CONNECTED;
		cm_post(peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	return 0;
}

int cm_reject(struct cm_id *id, const struct rdma_ucm_reject *rej)
{
	struct rdma_ucm_event_resp *r;
	struct rdma_ucm_conn_param p = {0};
	struct cm_id *peer;

	if (id->peer < 0 || (id->state != CM_CONNECTING && id->state != CM_ACCEPTED))
		return EINVAL;
	peer = &cm_table()->id[id->peer];
	id->state = peer->state = CM_CLOSED;
	id->peer = peer->peer = -1;
	if (peer->passive && !peer->uid)
		return 0; /* it has not been accepted: nobody to tell */
	if (is_ud(id)) {
		cm_post(peer, RDMA_CM_EVENT_UNREACHABLE, SIDR_REJECT);
		return 0;
	}
	r = cm_post(peer, RDMA_CM_EVENT_REJECTED, rej->reason ? rej->reason : REJ_CONSUMER);
	p.private_data_len = rej->private_data_len < REJ_DATA ? rej->private_data_len : REJ_DATA;
	memcpy(p.private_data, rej->private_data, p.private_data_len);
	put_conn(r, &p, REJ_DATA);
	return 0;
}

/* Both ends hear of it, each once; asking again is no error. */
void cm_disconnect(struct cm_id *id)
{
	struct cm_id *peer = id->peer >= 0 ? &cm_table()->id[id->peer] : NULL;

	if (id->state != CM_CONNECTED && id->state != CM_ACCEPTED)
		return;
	id->state = CM_CLOSED;
	cm_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	if (peer && (peer->state == CM_CONNECTED || peer->state == CM_ACCEPTED)) {
		peer->state = CM_CLOSED;
		cm_post(peer, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
}

static void attr_init(const struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->port_num = 1;
	if (is_ud(id)) {
		a->qp_attr_mask |= IBV_QP_QKEY;
		a->qkey = UDP_QKEY;
		return;
	}
	a->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	if (id->peer >= 0) {
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->responder_resources)
			a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
}

static void attr_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	a->qp_attr_mask = IBV_QP_STATE;
	if (is_ud(id))
		return;
	a->qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	cm_ah_attr(id, id->peer_dev, &a->ah_attr);
	a->path_mtu = self.seg->cfg.mtu;
	a->dest_qp_num = id->peer_qpn;
	a->rq_psn = id->peer_qpn;
	if (id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_RECV) {
		a->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a->max_dest_rd_atomic = id->responder_resources;
		a->min_rnr_timer = 0; /* 655 ms: what the kernel's CM leaves there */
	}
}

static void attr_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	a->sq_psn = id->qpn;
	if (is_ud(id))
		return;
	if (id->qp_type == IBV_QPT_XRC_RECV) {
		a->qp_attr_mask |= IBV_QP_TIMEOUT;
	} else if (id->qp_type != IBV_QPT_UC) {
		a->qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC;
		a->retry_cnt = id->retry_count;
		a->rnr_retry = id->rnr_retry;
		a->max_rd_atomic = id->initiator_depth;
	}
	a->timeout = id->ack_timeout ? id->ack_timeout : 17;
}

int cm_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->qp_state = state;
	if (id->dev < 0)
		return EINVAL;
	switch (state) {
	case IBV_QPS_INIT:
		attr_init(id, a);
		return 0;
	case IBV_QPS_RTR:
		attr_rtr(id, a);
		return !is_ud(id) && id->peer_dev < 0 ? EINVAL : 0;
	case IBV_QPS_RTS:
		attr_rts(id, a);
		return 0;
	default:
		return EINVAL;
	}
}

/* The multicast GID of an IPv4 group: IPv4-mapped for RoCE v2, ff12:401b: for IB (IPoIB). */
static void group_gid(const struct sockaddr_in6 *addr, uint8_t gid[16])
{
	const struct sockaddr_in *v4 = (const void *)addr;

	if (addr->sin6_family == AF_INET6) {
		memcpy(gid, &addr->sin6_addr, 16);
		return;
	}
	memset(gid, 0, 16);
	if (self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET)
		gid[10] = gid[11] = 0xff;
	else
		memcpy(gid, "\xff\x12\x40\x1b\xff\xff", 6);
	memcpy(gid + 12, &v4->sin_addr, 4);
}

int cm_join(struct cm_id *id, uint64_t uid, const struct sockaddr_in6 *addr, uint32_t *num)
{
	struct rdma_ucm_event_resp *r;
	struct cm_id *mc;

	if (id->dev < 0)
		return EINVAL;
	mc = cm_new(id->proc, uid, 0, id->ps, id->qp_type);
	if (!mc)
		return ENOMEM;
	mc->member_of = cm_num(id);
	*num = cm_num(mc);
	r = cm_post(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	cm_event_of(r)->mc = 1 + *num;
	r->uid = uid;
	r->param.ud.qp_num = 0xffffff;
	r->param.ud.qkey = UDP_QKEY;
	cm_ah_attr(id, id->dev, &r->param.ud.ah_attr);
	group_gid(addr, r->param.ud.ah_attr.grh.dgid);
	r->param.ud.ah_attr.dlid = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET ? 0 : 0xc000;
	r->param.ud.ah_attr.is_global = 1;
	return 0;
}
