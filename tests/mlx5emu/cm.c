/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rdma_cm file: identifiers, addresses, events, and the dispatch of its write() commands.
 *
 * The IP forms of the commands are answered; BIND, RESOLVE_ADDR and QUERY are refused, upon which
 * librdmacm uses the IP forms. Addresses 10.77.0.N name device N - 1; any other address is taken
 * for the device given by MLX5EMU_HOST (0 if unset), so that 127.0.0.1 works.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>

#include "cm.h"

int cm_open(void)
{
	struct emu_queue *q;
	int err = shm_join();

	if (err) {
		errno = err;
		return -1;
	}
	q = queue_new();
	if (!q)
		return -1;
	nic_start();
	fd_set_kind(queue_fd(q), FD_CM, q);
	return queue_fd(q);
}

uint32_t cm_num(const struct cm_id *id)
{
	return id - cm_table()->id;
}

struct cm_id *cm_new(uint32_t proc, uint64_t uid, uint64_t queue, uint32_t ps, uint32_t qp_type)
{
	struct emu_cm *cm = cm_table();
	struct cm_id *id;
	uint32_t n;

	for (n = 0; n < EMU_CMIDS && cm->id[cm->next_id].used; n++)
		cm->next_id = (cm->next_id + 1) % EMU_CMIDS;
	if (n == EMU_CMIDS)
		return NULL;
	id = &cm->id[cm->next_id];
	cm->next_id = (cm->next_id + 1) % EMU_CMIDS;
	*id = (struct cm_id){
		.used = 1,
		.proc = proc,
		.uid = uid,
		.queue = queue,
		.ps = ps,
		.qp_type = qp_type,
		.dev = -1,
		.peer_dev = -1,
		.peer = -1,
		.listener = -1,
		.member_of = -1,
	};
	return id;
}

struct cm_id *cm_get(uint32_t num)
{
	struct cm_id *id = num < EMU_CMIDS ? &cm_table()->id[num] : NULL;

	return id && id->used && (int)id->proc == self.proc ? id : NULL;
}

/* An event in the pool; the caller fills in the parameters of the result. */
struct rdma_ucm_event_resp *cm_post(struct cm_id *id, uint32_t event, int status)
{
	static struct cm_event lost;
	struct emu_cm *cm = cm_table();
	struct cm_event *ev;
	uint32_t i;

	for (i = 0; i < EMU_CMEVS && cm->ev[i].used; i++)
		;
	if (i == EMU_CMEVS)
		return &lost.resp;
	ev = &cm->ev[i];
	memset(ev, 0, sizeof(*ev));
	ev->used = 1;
	ev->proc = id->proc;
	ev->id = cm_num(id);
	ev->seq = cm->next_seq++;
	ev->resp.uid = id->uid;
	ev->resp.id = ev->id;
	ev->resp.event = event;
	ev->resp.status = status;
	atomic_fetch_add(&cm->pending[id->proc], 1);
	shm_wake(id->proc);
	return &ev->resp;
}

static struct cm_event *oldest_mine(void)
{
	struct emu_cm *cm = cm_table();
	struct cm_event *best = NULL;
	uint32_t i;

	for (i = 0; i < EMU_CMEVS; i++)
		if (cm->ev[i].used && (int)cm->ev[i].proc == self.proc &&
		    (!best || cm->ev[i].seq < best->seq))
			best = &cm->ev[i];
	return best;
}

/* With seg->lock: move this process's events to their channels. */
static void deliver(void)
{
	struct emu_cm *cm = cm_table();
	struct cm_event *ev;
	struct cm_id *id;

	while (atomic_load(&cm->pending[self.proc]) && (ev = oldest_mine())) {
		id = &cm->id[ev->id];
		if (id->used && id->queue)
			queue_put((struct emu_queue *)(uintptr_t)id->queue, ev, sizeof(*ev), SRC_CM,
				  ev->id);
		ev->used = 0;
		atomic_fetch_sub(&cm->pending[self.proc], 1);
	}
}

/* A connection whose other end died without a word is disconnected. */
static void look_for_dead_peers(void)
{
	static uint64_t last;
	struct emu_cm *cm = cm_table();
	uint64_t now = now_ns();
	uint32_t i;
	bool dead = false;

	if (now - last < 100000000)
		return;
	last = now;
	for (i = 0; i < EMU_CMIDS && !dead; i++)
		if (cm->id[i].used && (int)cm->id[i].proc == self.proc && cm->id[i].peer >= 0)
			dead = !shm_alive_lately(cm->id[cm->id[i].peer].proc);
	if (dead)
		shm_reclaim();
}

void cm_pass(void)
{
	struct emu_cm *cm = cm_table();

	if (self.ncms)
		look_for_dead_peers();
	if (!atomic_load_explicit(&cm->pending[self.proc], memory_order_relaxed))
		return;
	shm_lock(&self.seg->lock);
	deliver();
	shm_unlock(&self.seg->lock);
}

/* Events that were not read go with their identifier. */
void cm_purge(struct cm_id *id)
{
	struct emu_cm *cm = cm_table();
	uint32_t i, num = cm_num(id);

	for (i = 0; i < EMU_CMEVS; i++)
		if (cm->ev[i].used && cm->ev[i].id == num) {
			cm->ev[i].used = 0;
			atomic_fetch_sub(&cm->pending[cm->ev[i].proc], 1);
		}
	if ((int)id->proc == self.proc && id->queue)
		queue_purge((struct emu_queue *)(uintptr_t)id->queue, SRC_CM, num);
}

/* Requests that a listener never saw are refused when it goes. */
static void drop_requests(uint32_t listener)
{
	struct emu_cm *cm = cm_table();
	struct rdma_ucm_reject none = {0};
	uint32_t i;

	for (i = 0; i < EMU_CMIDS; i++)
		if (cm->id[i].used && cm->id[i].listener == (int)listener && !cm->id[i].uid) {
			cm_reject(&cm->id[i], &none);
			cm->id[i].used = 0;
		}
}

void cm_free(struct cm_id *id)
{
	struct emu_cm *cm = cm_table();
	struct rdma_ucm_reject none = {0};
	uint32_t i, num = cm_num(id);

	if (id->state == CM_CONNECTED || id->state == CM_ACCEPTED)
		cm_disconnect(id);
	else if (id->state == CM_CONNECTING && id->peer >= 0)
		cm_reject(id, &none);
	cm_purge(id);
	for (i = 0; i < EMU_CMIDS; i++) {
		if (cm->id[i].used && cm->id[i].peer == (int)num)
			cm->id[i].peer = -1;
		if (cm->id[i].used && cm->id[i].member_of == (int)num)
			cm->id[i].used = 0;
	}
	if (id->state == CM_LISTEN)
		drop_requests(num);
	id->used = 0;
}

/* With seg->lock, for a dead process. */
void cm_reclaim(uint32_t proc)
{
	struct emu_cm *cm = cm_table();
	uint32_t i;

	for (i = 0; i < EMU_CMIDS; i++)
		if (cm->id[i].used && cm->id[i].proc == proc)
			cm_free(&cm->id[i]);
	atomic_store(&cm->pending[proc], 0);
}

void cm_forked(void)
{
}

/* The descriptor is going; identifiers made through it are destroyed, as by the kernel. */
void cm_close(int fd, void *obj)
{
	struct emu_cm *cm = cm_table();
	uint32_t i;

	(void)fd;
	nic_lock();
	shm_lock(&self.seg->lock);
	for (i = 0; i < EMU_CMIDS; i++)
		if (cm->id[i].used && (int)cm->id[i].proc == self.proc &&
		    cm->id[i].queue == (uintptr_t)obj) {
			cm_free(&cm->id[i]);
			if (self.ncms)
				self.ncms--;
		}
	shm_unlock(&self.seg->lock);
	queue_close(obj);
	nic_unlock();
}

uint16_t *cm_port_of(struct sockaddr_in6 *a)
{
	return &a->sin6_port; /* at the same place in sockaddr_in */
}

static bool is_any(const struct sockaddr_in6 *a)
{
	const struct sockaddr_in *v4 = (const void *)a;

	if (a->sin6_family == AF_INET)
		return v4->sin_addr.s_addr == INADDR_ANY;
	return IN6_IS_ADDR_UNSPECIFIED(&a->sin6_addr);
}

/* -1 for the wildcard address. */
int cm_addr_dev(const struct sockaddr_in6 *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	uint32_t i, host = env_size("MLX5EMU_HOST", 0);

	if (is_any(a))
		return -1;
	for (i = 0; i < self.seg->cfg.ndevs && a->sin6_family == AF_INET; i++)
		if (v4->sin_addr.s_addr == dev_ipv4(i))
			return i;
	return host < self.seg->cfg.ndevs ? host : 0;
}

static bool port_taken(const struct cm_id *me, uint16_t port)
{
	struct emu_cm *cm = cm_table();
	uint32_t i;

	for (i = 0; i < EMU_CMIDS; i++) {
		struct cm_id *o = &cm->id[i];

		if (!o->used || o == me || o->ps != me->ps || o->port != port || o->passive)
			continue;
		if (o->reuse && me->reuse && o->state != CM_LISTEN)
			continue;
		if (o->dev < 0 || me->dev < 0 || o->dev == me->dev)
			return true;
	}
	return false;
}

int cm_bind_port(struct cm_id *id, uint16_t port)
{
	struct emu_cm *cm = cm_table();
	uint32_t n;

	if (port && port_taken(id, port))
		return EADDRINUSE;
	for (n = 0; !port && n < 20000; n++) {
		cm->next_port = (cm->next_port + 1) % 20000;
		if (!port_taken(id, 40000 + cm->next_port))
			port = 40000 + cm->next_port;
	}
	id->port = port;
	*cm_port_of(&id->src) = htons(port);
	return port ? 0 : EADDRNOTAVAIL;
}

static int bind_ip(struct cm_id *id, const struct rdma_ucm_bind_ip *c)
{
	int err;

	if (id->state != CM_IDLE ||
	    (c->addr.sin6_family != AF_INET && c->addr.sin6_family != AF_INET6))
		return EINVAL;
	id->src = c->addr;
	id->dev = cm_addr_dev(&c->addr);
	err = cm_bind_port(id, ntohs(*cm_port_of(&id->src)));
	if (!err)
		id->state = CM_BOUND;
	return err;
}

static void source_from(struct cm_id *id)
{
	struct sockaddr_in *v4 = (void *)&id->src;
	uint16_t port = id->port;
	int dst = cm_addr_dev(&id->dst);

	if (!id->src.sin6_family || is_any(&id->src)) {
		id->src = id->dst;
		/* To a device address: from our own one; to 127.0.0.1: from there. */
		if (id->dst.sin6_family == AF_INET &&
		    ((struct sockaddr_in *)&id->dst)->sin_addr.s_addr == dev_ipv4(dst))
			v4->sin_addr.s_addr = dev_ipv4(id->dev);
	}
	*cm_port_of(&id->src) = htons(port);
}

static int resolve_ip(struct cm_id *id, const struct rdma_ucm_resolve_ip *c)
{
	uint32_t host = env_size("MLX5EMU_HOST", 0);
	int err = 0;

	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return EINVAL;
	if (c->dst_addr.sin6_family != AF_INET && c->dst_addr.sin6_family != AF_INET6)
		return EINVAL;
	if (c->src_addr.sin6_family && id->state == CM_IDLE) {
		id->src = c->src_addr;
		id->dev = cm_addr_dev(&c->src_addr);
	}
	id->dst = c->dst_addr;
	id->peer_dev = cm_addr_dev(&c->dst_addr);
	if (id->peer_dev < 0)
		id->peer_dev = 0;
	if (id->dev < 0)
		id->dev = host < self.seg->cfg.ndevs ? host : 0;
	if (!id->port)
		err = cm_bind_port(id, ntohs(*cm_port_of(&id->src)));
	if (err)
		return err;
	source_from(id);
	id->state = CM_RESOLVED;
	cm_post(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

static int resolve_route(struct cm_id *id)
{
	if (id->state != CM_RESOLVED)
		return EINVAL;
	id->routed = 1;
	cm_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

static int listen_on(struct cm_id *id)
{
	int err = 0;

	if (id->state == CM_IDLE) {
		id->src.sin6_family = AF_INET;
		err = cm_bind_port(id, 0);
	} else if (id->state != CM_BOUND) {
		err = EINVAL;
	}
	if (!err)
		id->state = CM_LISTEN;
	return err;
}

static void put_path(const struct cm_id *id, struct ib_user_path_rec *p)
{
	bool eth = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET;
	uint32_t gid = eth ? 3 : 0;

	dev_gid(id->dev, gid, p->sgid);
	if (id->peer_dev >= 0)
		dev_gid(id->peer_dev, gid, p->dgid);
	p->slid = htons(eth ? 0 : dev_lid(id->dev));
	p->dlid = htons(eth || id->peer_dev < 0 ? 0 : dev_lid(id->peer_dev));
	p->pkey = 0xffff;
	p->reversible = 1;
	p->numb_path = 1;
	p->hop_limit = 64;
	p->traffic_class = id->tos;
	p->mtu_selector = p->rate_selector = p->packet_life_time_selector = 2;
	p->mtu = self.seg->cfg.mtu;
	p->rate = IBV_RATE_100_GBPS;
	p->packet_life_time = 16;
}

static void query_route(const struct cm_id *id, struct rdma_ucm_query_route_resp *r)
{
	memset(r, 0, sizeof(*r));
	r->src_addr = id->src;
	r->dst_addr = id->dst;
	r->ibdev_index = UINT32_MAX; /* devices are told by GUID */
	if (id->dev < 0)
		return;
	r->node_guid = htobe64(dev_guid(id->dev));
	r->port_num = 1;
	r->num_paths = id->routed || id->passive;
	put_path(id, &r->ib_route[0]);
}

static int set_option(struct cm_id *id, const struct rdma_ucm_set_option *c)
{
	const uint8_t *v = (const void *)(uintptr_t)c->optval;

	if (c->level == RDMA_OPTION_IB && c->optname == RDMA_OPTION_IB_PATH)
		return resolve_route(id);
	if (c->level != RDMA_OPTION_ID || !c->optlen)
		return ENOSYS;
	switch (c->optname) {
	case RDMA_OPTION_ID_TOS:
		id->tos = *v;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		id->reuse = *v != 0;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		id->ack_timeout = *v & 31;
		return 0;
	default:
		return ENOSYS;
	}
}

/* Unread events move to the new channel; read ones are reported, so that acks can be awaited. */
static void migrate(struct cm_id *id, struct emu_queue *to, struct rdma_ucm_migrate_resp *resp)
{
	queue_move((struct emu_queue *)(uintptr_t)id->queue, to, SRC_CM, cm_num(id));
	id->queue = (uintptr_t)to;
	resp->events_reported = id->events_read;
}

static void count_read(const struct cm_event *ev)
{
	struct emu_cm *cm = cm_table();

	/* A connection request counts at the listener: its channel and uid are the listener's. */
	cm->id[ev->id].events_read++;
	if (ev->mc)
		cm->id[ev->mc - 1].events_read++;
}

static int get_event(struct emu_queue *q, const struct rdma_ucm_get_event *c, uint16_t out)
{
	struct cm_event ev;

	if (queue_read(q, &ev, sizeof(ev)) < 0)
		return errno;
	shm_lock(&self.seg->lock);
	count_read(&ev);
	shm_unlock(&self.seg->lock);
	memcpy((void *)(uintptr_t)c->response, &ev.resp,
	       out < sizeof(ev.resp) ? out : sizeof(ev.resp));
	return 0;
}

union cm_cmd {
	struct rdma_ucm_create_id create;
	struct rdma_ucm_destroy_id destroy;
	struct rdma_ucm_bind_ip bind;
	struct rdma_ucm_resolve_ip resolve;
	struct rdma_ucm_resolve_route route;
	struct rdma_ucm_query query;
	struct rdma_ucm_connect connect;
	struct rdma_ucm_listen listen;
	struct rdma_ucm_accept accept;
	struct rdma_ucm_reject reject;
	struct rdma_ucm_disconnect disconnect;
	struct rdma_ucm_init_qp_attr attr;
	struct rdma_ucm_get_event event;
	struct rdma_ucm_set_option option;
	struct rdma_ucm_join_ip_mcast join;
	struct rdma_ucm_migrate_id migrate;
};

union cm_resp {
	struct rdma_ucm_create_id_resp create;
	struct rdma_ucm_destroy_id_resp destroy;
	struct rdma_ucm_query_route_resp route;
	struct rdma_ucm_migrate_resp migrate;
	struct ib_uverbs_qp_attr attr;
};

#define AT(cmd, member) [RDMA_USER_CM_CMD_##cmd] = 1 + offsetof(union cm_cmd, member)

/* Where the identifier of a command lies, plus 1; 0: a command that is refused. */
static const uint16_t id_at[] = {
	AT(DESTROY_ID, destroy.id), AT(LEAVE_MCAST, destroy.id),   AT(BIND_IP, bind.id),
	AT(RESOLVE_IP, resolve.id), AT(RESOLVE_ROUTE, route.id),   AT(QUERY_ROUTE, query.id),
	AT(CONNECT, connect.id),    AT(LISTEN, listen.id),	   AT(ACCEPT, accept.id),
	AT(REJECT, reject.id),	    AT(DISCONNECT, disconnect.id), AT(INIT_QP_ATTR, attr.id),
	AT(SET_OPTION, option.id),  AT(NOTIFY, listen.id),	   AT(JOIN_IP_MCAST, join.id),
	AT(MIGRATE_ID, migrate.id),
};

/* The same for the address of the answer; 0: there is none. */
static const uint16_t response_at[] = {
	AT(DESTROY_ID, destroy.response), AT(LEAVE_MCAST, destroy.response),
	AT(QUERY_ROUTE, query.response),  AT(INIT_QP_ATTR, attr.response),
	AT(JOIN_IP_MCAST, join.response), AT(MIGRATE_ID, migrate.response),
};

static uint32_t cmd_id(uint32_t cmd, const union cm_cmd *c)
{
	uint32_t id = UINT32_MAX;

	if (cmd < sizeof(id_at) / sizeof(*id_at) && id_at[cmd])
		memcpy(&id, (const char *)c + id_at[cmd] - 1, sizeof(id));
	return id;
}

static uint64_t cmd_response(uint32_t cmd, const union cm_cmd *c)
{
	uint64_t response = 0;

	if (cmd < sizeof(response_at) / sizeof(*response_at) && response_at[cmd])
		memcpy(&response, (const char *)c + response_at[cmd] - 1, sizeof(response));
	return response;
}

static int id_command(uint32_t cmd, struct cm_id *id, const union cm_cmd *c, struct emu_queue *q,
		      union cm_resp *r)
{
	switch (cmd) {
	case RDMA_USER_CM_CMD_DESTROY_ID:
	case RDMA_USER_CM_CMD_LEAVE_MCAST:
		r->destroy.events_reported = id->events_read;
		cm_free(id);
		self.ncms -= cmd == RDMA_USER_CM_CMD_DESTROY_ID && self.ncms;
		return 0;
	case RDMA_USER_CM_CMD_BIND_IP:
		return bind_ip(id, &c->bind);
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		return resolve_ip(id, &c->resolve);
	case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		return resolve_route(id);
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
		query_route(id, &r->route);
		return 0;
	case RDMA_USER_CM_CMD_CONNECT:
		return cm_connect(id, &c->connect.conn_param);
	case RDMA_USER_CM_CMD_LISTEN:
		return listen_on(id);
	case RDMA_USER_CM_CMD_ACCEPT:
		return cm_accept(id, c->accept.uid, &c->accept.conn_param);
	case RDMA_USER_CM_CMD_REJECT:
		return cm_reject(id, &c->reject);
	case RDMA_USER_CM_CMD_DISCONNECT:
		cm_disconnect(id);
		return 0;
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		return cm_qp_attr(id, c->attr.qp_state, &r->attr);
	case RDMA_USER_CM_CMD_SET_OPTION:
		return set_option(id, &c->option);
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		return cm_join(id, c->join.uid, &c->join.addr, &r->create.id);
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		migrate(id, q, &r->migrate);
		return 0;
	default:
		return 0; /* NOTIFY */
	}
}

static int create_id(struct emu_queue *q, const struct rdma_ucm_create_id *c)
{
	struct rdma_ucm_create_id_resp resp;
	struct cm_id *id;

	if (c->ps != RDMA_PS_TCP && c->ps != RDMA_PS_UDP && c->ps != RDMA_PS_IPOIB &&
	    c->ps != RDMA_PS_IB)
		return EINVAL;
	shm_lock(&self.seg->lock);
	id = cm_new(self.proc, c->uid, (uintptr_t)q, c->ps, c->qp_type);
	shm_unlock(&self.seg->lock);
	if (!id)
		return ENOMEM;
	self.ncms++;
	shm_wake(self.proc);
	resp.id = cm_num(id);
	memcpy((void *)(uintptr_t)c->response, &resp, sizeof(resp));
	return 0;
}

/* Give a server some time between bind and listen. */
static void await_listener(uint32_t num)
{
	struct timespec nap = {.tv_nsec = 2000000};
	bool early = true;
	struct cm_id *id;
	int i;

	for (i = 0; early && i < 150; i++) {
		shm_lock(&self.seg->lock);
		id = cm_get(num);
		early = id && cm_too_early(id);
		shm_unlock(&self.seg->lock);
		if (early)
			nanosleep(&nap, NULL);
	}
}

static int command(uint32_t cmd, const union cm_cmd *c, struct emu_queue *q, uint16_t out)
{
	union cm_resp r = {0};
	uint64_t response = cmd_response(cmd, c);
	uint32_t num = cmd_id(cmd, c);
	struct cm_id *id;
	int err;

	if (num == UINT32_MAX)
		return EINVAL;
	if (cmd == RDMA_USER_CM_CMD_CONNECT)
		await_listener(num);
	nic_lock();
	shm_lock(&self.seg->lock);
	id = cm_get(num);
	err = id ? id_command(cmd, id, c, q, &r) : ENOENT;
	deliver();
	shm_unlock(&self.seg->lock);
	nic_unlock();
	if (!err && response)
		memcpy((void *)(uintptr_t)response, &r, out < sizeof(r) ? out : sizeof(r));
	return err;
}

ssize_t cm_write(int fd, const void *buf, size_t n)
{
	const struct rdma_ucm_cmd_hdr *h = buf;
	struct emu_queue *q = fd_get(fd, FD_CM);
	union cm_cmd c;
	int err;

	if (!q || n < sizeof(*h) || h->in + sizeof(*h) > n) {
		errno = EINVAL;
		return -1;
	}
	memset(&c, 0, sizeof(c));
	memcpy(&c, h + 1, h->in < sizeof(c) ? h->in : sizeof(c));
	if (h->cmd == RDMA_USER_CM_CMD_GET_EVENT)
		err = get_event(q, &c.event, h->out);
	else if (h->cmd == RDMA_USER_CM_CMD_CREATE_ID)
		err = create_id(q, &c.create);
	else
		err = command(h->cmd, &c, q, h->out);
	if (!err)
		return n;
	if (err != EAGAIN)
		emu_log("rdma_cm command %u: %s", h->cmd, strerror(err));
	errno = err;
	return -1;
}
