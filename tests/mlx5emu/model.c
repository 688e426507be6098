/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Models of what a NIC takes time for. All are off unless asked for, all constants are inputs:
 * results show how software reacts to such a NIC, not how a real one behaves.
 *
 *  port     Data leaves a device packet by packet (up to the path MTU, + 78 bytes of headers) at
 *           `rate`. QPs that want the port are served in turn, over all processes. Data of a READ
 *           and the ACKs of RC charge the responder's port.
 *  latency  A packet arrives `latency` after it left; a completion waits for the way back.
 *  cache    The last N QPs of a device are in its context cache; a miss costs the port extra time.
 *  rx units A packet is processed by the unit its destination QP hashes to, one at a time.
 *
 * Any process may hand out port time, also to QPs of others: so the port does not stand still
 * while the process whose turn it is waits for a CPU. Port time is given for the past, too, if
 * the data was ready then.
 */
#include "emu.h"

#define HEADERS 78u /* Ethernet, IP, UDP, BTH, RETH or so, ICRC, FCS, preamble and gap */

enum { GRANTS = 256 };

bool model_on(void)
{
	const struct emu_config *c = &self.seg->cfg;

	return c->rate_bps || c->latency_ns || c->cache_entries || c->rx_units;
}

static uint64_t wire_ns(uint32_t bytes)
{
	uint64_t rate = self.seg->cfg.rate_bps;

	return rate ? (uint64_t)(bytes + HEADERS) * 8 * 1000000000u / rate : 0;
}

static uint32_t mtu_bytes(const struct emu_qp *qp)
{
	uint32_t mtu = qp->type == IBV_QPT_UD ? self.seg->cfg.mtu : qp->attr.path_mtu;

	return 128u << (mtu ? mtu : IBV_MTU_1024);
}

/* The cost of having the context of `qpn` at hand. Least recently used goes first. */
static uint64_t touch_context(struct emu_dev *d, uint32_t qpn)
{
	uint32_t i, max = self.seg->cfg.cache_entries;
	bool hit;

	if (!max)
		return 0;
	for (i = 0; i < d->ncached && d->cache[i] != qpn; i++)
		;
	hit = i < d->ncached;
	if (!hit && d->ncached < max)
		d->ncached++;
	if (i >= max)
		i = max - 1;
	memmove(d->cache + 1, d->cache, i * sizeof(*d->cache));
	d->cache[0] = qpn;
	d->cache_misses += !hit;
	return hit ? 0 : self.seg->cfg.cache_miss_ns;
}

static uint64_t through_rx_unit(uint32_t dest, uint32_t dqpn, uint64_t arrive)
{
	uint32_t units = self.seg->cfg.rx_units;
	uint64_t *free_ns;

	if (!units)
		return arrive;
	free_ns = &self.seg->dev[dest].rx_free_ns[(dqpn * 2654435761u >> 16) % units];
	*free_ns = (*free_ns > arrive ? *free_ns : arrive) + self.seg->cfg.rx_unit_ns;
	return *free_ns;
}

static const struct emu_want *head_want(const struct emu_sched *s)
{
	/* W2 acquire, pairs with W1 */
	if (s->want_head == __atomic_load_n(&s->want_tail, __ATOMIC_ACQUIRE))
		return NULL;
	return &s->want[s->want_head % EMU_WANTS];
}

static bool flight_full(const struct emu_sched *s)
{
	return s->flight_tail - s->flight_head == EMU_FLIGHT;
}

static void grant(struct emu_dev *d, struct emu_qp *qp, const struct emu_want *w)
{
	struct emu_sched *s = &qp->sched;
	uint32_t left = w->bytes - s->granted, mtu = mtu_bytes(qp);
	uint32_t n = left < mtu ? left : mtu;
	uint64_t start = d->port_free_ns > w->ready_ns ? d->port_free_ns : w->ready_ns;
	struct emu_packet *p = &s->flight[s->flight_tail % EMU_FLIGHT];

	p->bytes = n;
	p->last = n == left;
	if (w->free) {
		p->arrive_ns = w->ready_ns;
	} else {
		d->port_free_ns = start + atomic_exchange(&d->debt_ns, 0) +
				  touch_context(d, qp->qpn) + wire_ns(n);
		p->arrive_ns = through_rx_unit(w->dest, w->dqpn,
					       d->port_free_ns + self.seg->cfg.latency_ns);
		d->tx_bytes += n;
		d->tx_packets++;
	}
	/* F1 release, pairs with F2: the owner sees the packet once it sees the index. */
	__atomic_store_n(&s->flight_tail, s->flight_tail + 1, __ATOMIC_RELEASE);
	s->granted += n;
	if (s->granted == w->bytes) {
		if (qp->type != IBV_QPT_UD && qp->type != IBV_QPT_UC && !w->free)
			atomic_fetch_add(&self.seg->dev[w->dest].debt_ns, wire_ns(0));
		s->granted = 0;
		s->want_head++;
	}
}

static void unlist(struct emu_dev *d, uint32_t i)
{
	self.seg->qp[d->active[i]].sched.listed = 0;
	d->active[i] = d->active[--d->nactive];
	if (d->next >= d->nactive)
		d->next = 0;
}

static bool list(struct emu_dev *d, struct emu_qp *qp)
{
	if (qp->sched.listed || d->nactive == EMU_ACTIVE)
		return qp->sched.listed;
	d->active[d->nactive++] = qp - self.seg->qp;
	qp->sched.listed = 1 + (d - self.seg->dev);
	return true;
}

/* The next QP in turn that may send now, or NULL. Drops those that want nothing from here. */
static struct emu_qp *next_in_turn(struct emu_dev *d, uint64_t now)
{
	uint32_t n, dev = d - self.seg->dev;

	for (n = d->nactive; n && d->nactive; n--) {
		struct emu_qp *qp = &self.seg->qp[d->active[d->next]];
		const struct emu_want *w = head_want(&qp->sched);

		if (atomic_load(&qp->h.used) != 2 || !w || w->port != dev) {
			unlist(d, d->next);
			continue;
		}
		d->next = (d->next + 1) % d->nactive;
		if (w->ready_ns <= now && !flight_full(&qp->sched))
			return qp;
	}
	return NULL;
}

static void arbitrate(struct emu_dev *d, uint64_t now)
{
	struct emu_qp *qp;
	int i;

	for (i = 0; i < GRANTS && d->port_free_ns <= now; i++) {
		qp = next_in_turn(d, now);
		if (!qp)
			return;
		grant(d, qp, head_want(&qp->sched));
	}
}

/* When was the WQE at `index` seen for the first time? */
static uint64_t seen_at(struct emu_qp *qp, uint16_t index, uint64_t now)
{
	struct emu_sched *s = &qp->sched;
	uint32_t last = (s->seen_tail - 1) % 8;

	if (s->seen_head == s->seen_tail || s->seen_pi[last] != qp->tx.pi) {
		if (s->seen_tail - s->seen_head < 8)
			s->seen_tail++; /* else the newest entry stands for both */
		last = (s->seen_tail - 1) % 8;
		s->seen_pi[last] = qp->tx.pi;
		s->seen_ns[last] = now;
	}
	while (s->seen_tail - s->seen_head > 1 &&
	       (int16_t)(s->seen_pi[s->seen_head % 8] - index) <= 0)
		s->seen_head++;
	return s->seen_ns[s->seen_head % 8];
}

static int peer_dev(const struct emu_qp *qp, const struct emu_wqe *w)
{
	const struct emu_qp *peer =
		qp_find(qp->type == IBV_QPT_UD ? w->dqpn : qp->attr.dest_qp_num);

	return peer ? peer->h.dev : qp->h.dev;
}

static void want(struct emu_qp *qp, const struct emu_wqe *w, bool bad, uint64_t ready)
{
	struct emu_sched *s = &qp->sched;
	struct emu_want *n = &s->want[s->want_tail % EMU_WANTS];
	int peer = peer_dev(qp, w);
	bool fetch = w->opcode == MLX5_OPCODE_RDMA_READ || w->opcode == MLX5_OPCODE_ATOMIC_CS ||
		     w->opcode == MLX5_OPCODE_ATOMIC_FA;

	*n = (struct emu_want){
		.ready_ns = ready > s->hold_ns ? ready : s->hold_ns,
		.bytes = bad ? 0 : w->len,
		.port = qp->h.dev,
		.dest = peer,
		.dqpn = qp->type == IBV_QPT_UD ? w->dqpn : qp->attr.dest_qp_num,
		.free = bad || w->opcode == MLX5_OPCODE_UMR || w->opcode == MLX5_OPCODE_NOP,
	};
	if (fetch && !n->free) { /* the data comes from the other side, after the request */
		n->port = peer;
		n->dest = qp->h.dev;
		n->dqpn = qp->qpn;
		n->ready_ns += wire_ns(16) + self.seg->cfg.latency_ns;
		atomic_fetch_add(&self.seg->dev[qp->h.dev].debt_ns, wire_ns(16));
	}
	/* W1 release, pairs with W2: who grants sees the wish once it sees the index. */
	__atomic_store_n(&s->want_tail, s->want_tail + 1, __ATOMIC_RELEASE);
}

/* Off the list it is on, if any. */
static void leave_list(struct emu_qp *qp)
{
	uint32_t listed = qp->sched.listed, i;
	struct emu_dev *d;

	if (!listed)
		return;
	d = &self.seg->dev[listed - 1];
	shm_lock(&d->lock);
	for (i = 0; i < d->nactive; i++)
		if (d->active[i] == (uint32_t)(qp - self.seg->qp)) {
			unlist(d, i);
			break;
		}
	qp->sched.listed = 0;
	shm_unlock(&d->lock);
}

/* Tell the port about WQEs that it does not know yet, and let it work. */
void model_publish(struct emu_qp *qp)
{
	struct emu_sched *s = &qp->sched;
	const struct emu_want *head;
	uint64_t now = now_ns();
	struct emu_dev *d;
	struct emu_wqe w;
	bool bad;

	if (s->want_head == s->want_tail && s->flight_head == s->flight_tail)
		s->published = qp->tx.ci;
	while (s->published != qp->tx.pi && s->want_tail - s->want_head < EMU_WANTS) {
		bad = wqe_fetch(qp, s->published, &w) != 0;
		want(qp, &w, bad, seen_at(qp, s->published, now));
		s->published += (w.ds + 3) / 4;
	}
	head = head_want(s);
	if (!head)
		return;
	if (s->listed && s->listed - 1 != head->port)
		leave_list(qp); /* a READ after a WRITE: the other side's port */
	d = &self.seg->dev[head->port];
	shm_lock(&d->lock);
	if (list(d, qp))
		arbitrate(d, now);
	shm_unlock(&d->lock);
}

bool model_arrived(struct emu_qp *qp, uint64_t now)
{
	struct emu_sched *s = &qp->sched;
	struct emu_packet *p;

	qp->tx.piece = 0;
	/* What has come in of one message is handled at once: late packets must not cost more. */
	do {
		p = &s->flight[s->flight_head % EMU_FLIGHT];
		/* F2 acquire, pairs with F1 */
		if (s->flight_head == __atomic_load_n(&s->flight_tail, __ATOMIC_ACQUIRE) ||
		    p->arrive_ns > now)
			return qp->tx.piece != 0;
		qp->tx.piece += p->bytes;
		qp->tx.arrived_ns = p->arrive_ns;
		s->flight_head++;
	} while (!p->last);
	return true;
}

/* Is there something to come back for, and when? */
bool model_waiting(const struct emu_qp *qp, uint64_t *due)
{
	const struct emu_sched *s = &qp->sched;
	const struct emu_want *w = head_want(s);
	uint64_t at = UINT64_MAX, port;

	if (s->flight_head != s->flight_tail)
		at = s->flight[s->flight_head % EMU_FLIGHT].arrive_ns;
	if (s->ack_head != s->ack_tail && s->ack[s->ack_head % EMU_ACKS].due_ns < at)
		at = s->ack[s->ack_head % EMU_ACKS].due_ns;
	if (w) {
		port = self.seg->dev[w->port].port_free_ns;
		port = port > w->ready_ns ? port : w->ready_ns;
		at = port < at ? port : at;
	}
	*due = at;
	return at != UINT64_MAX;
}

static void forget(struct emu_qp *qp)
{
	struct emu_sched *s = &qp->sched;

	leave_list(qp);
	s->want_head = s->want_tail = 0;
	s->flight_head = s->flight_tail = 0;
	s->granted = 0;
}

/* Go back: everything not acknowledged is sent again, not before the given time. */
void model_restart(struct emu_qp *qp, uint64_t not_before)
{
	uint64_t now = now_ns();

	forget(qp);
	qp->sched.published = qp->tx.ci;
	qp->sched.hold_ns = now + 10000;
	if (self.seg->cfg.rnr_timing && not_before > qp->sched.hold_ns)
		qp->sched.hold_ns = not_before;
}

void model_forget(struct emu_qp *qp)
{
	forget(qp);
	qp->sched.published = qp->tx.pi;
	qp->sched.hold_ns = 0;
}

bool model_acks_full(const struct emu_qp *qp)
{
	return qp->sched.ack_tail - qp->sched.ack_head == EMU_ACKS;
}

/* True if the completion waits for an ACK; READ data and atomic results are their own ACK. */
bool model_delay(struct emu_qp *qp, const struct emu_wqe *w, const struct emu_cqe *e)
{
	struct emu_sched *s = &qp->sched;
	bool fetch = w->opcode == MLX5_OPCODE_RDMA_READ || w->opcode == MLX5_OPCODE_ATOMIC_CS ||
		     w->opcode == MLX5_OPCODE_ATOMIC_FA;
	bool local = fetch || qp->type == IBV_QPT_UD || qp->type == IBV_QPT_UC;

	if (s->ack_head == s->ack_tail && (local || !self.seg->cfg.latency_ns))
		return false;
	if (model_acks_full(qp))
		model_acks(qp, UINT64_MAX);
	s->ack[s->ack_tail++ % EMU_ACKS] = (struct emu_ack){
		.due_ns = qp->tx.arrived_ns + (local ? 0 : self.seg->cfg.latency_ns),
		.cqe = *e,
	};
	return true;
}

void model_acks(struct emu_qp *qp, uint64_t now)
{
	struct emu_sched *s = &qp->sched;

	while (s->ack_head != s->ack_tail && s->ack[s->ack_head % EMU_ACKS].due_ns <= now)
		cqe_write(&self.seg->cq[qp->scq], &s->ack[s->ack_head++ % EMU_ACKS].cqe);
}

/* The RNR NAK timer field (InfiniBand Architecture Specification, table 45), in nanoseconds. */
uint64_t rnr_timer_ns(uint32_t code)
{
	static const uint32_t us[32] = {
		655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
		480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
		20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	return us[code & 31] * 1000ull;
}
