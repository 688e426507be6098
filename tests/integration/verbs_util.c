/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_util.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct vu_common vu = {
	.dev = "rxe0", .peer_dev = "rxe1", .gid = 1, .seed = 1, .timeout = 60, .log = NULL};
void (*vu_on_hang)(void);

static const char *program = "test";
static const char *volatile where = "starting";
static FILE *log_file;

/* ---- outcome ---- */

void vu_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	if (log_file)
		fflush(log_file);
	fprintf(stderr, "FAIL %s (seed %" PRIu64 ", at: %s): ", program, vu.seed, where);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1); /* no destructors: what failed may be in them */
}

int vu_pass(const char *fmt, ...)
{
	va_list ap;

	vu_deadline(0);
	if (log_file && fclose(log_file))
		vu_die("writing the log: %s", strerror(errno));
	log_file = NULL;
	printf("PASS %s: ", program);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	return 0;
}

void vu_at(const char *what)
{
	where = what;
}

/* Not async-signal-safe on purpose: the program is lost anyway, and a second alarm ends it. */
static void on_deadline(int sig)
{
	signal(sig, SIG_DFL);
	alarm(5);
	fprintf(stderr, "FAIL %s (seed %" PRIu64 "): hung, at: %s\n", program, vu.seed, where);
	if (log_file)
		fflush(log_file);
	if (vu_on_hang)
		vu_on_hang();
	_exit(1);
}

void vu_deadline(unsigned int seconds)
{
	struct sigaction sa = {.sa_handler = on_deadline};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaction(SIGALRM, &sa, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	alarm(seconds);
}

/* ---- the log ---- */

void vu_log(const char *fmt, ...)
{
	va_list ap;

	if (!log_file)
		return;
	va_start(ap, fmt);
	vfprintf(log_file, fmt, ap);
	va_end(ap);
}

void vu_note(const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	vu_log("# %s", line);
}

static void open_log(void)
{
	if (!vu.log)
		return;
	log_file = fopen(vu.log, "we");
	if (!log_file)
		vu_die("%s: %s", vu.log, strerror(errno));
}

/* ---- options ---- */

static const struct vu_opt common_opts[] = {
	{"dev", VU_OPT_STR, &vu.dev, "RDMA device of the initiator"},
	{"peer-dev", VU_OPT_STR, &vu.peer_dev, "RDMA device of the target; may be the same one"},
	{"gid", VU_OPT_NUM, &vu.gid, "GID index on both devices"},
	{"seed", VU_OPT_NUM, &vu.seed, "seed of all random choices"},
	{"timeout", VU_OPT_NUM, &vu.timeout, "seconds after which the program counts as hung"},
	{"log", VU_OPT_STR, &vu.log, "write the canonical result log to this file"},
};

static void help_row(const struct vu_opt *o)
{
	char value[64] = "";

	if (o->kind == VU_OPT_NUM)
		snprintf(value, sizeof(value), " (%" PRIu64 ")", *(uint64_t *)o->to);
	else if (o->kind == VU_OPT_STR && *(const char **)o->to)
		snprintf(value, sizeof(value), " (%s)", *(const char **)o->to);
	printf("  --%-16s %s%s\n", o->name, o->help, value);
}

static void help(const char *about, const struct vu_opt *opts, size_t n)
{
	printf("%s: %s\n\nOptions (defaults in brackets):\n", program, about);
	for (size_t i = 0; i < n; i++)
		help_row(&opts[i]);
	for (size_t i = 0; i < VU_ARRAY(common_opts); i++)
		help_row(&common_opts[i]);
	printf("\nExit status: 0 passed, 1 failed.\n");
	exit(0);
}

/* A number with an optional K, M or G (powers of 1024). */
static uint64_t parse_number(const char *name, const char *s)
{
	static const char suffix[] = "KMG";
	const char *at;
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (errno || end == s)
		vu_die("--%s: not a number: %s", name, s);
	if (*end) {
		at = strchr(suffix, *end);
		if (!at || end[1])
			vu_die("--%s: not a number: %s", name, s);
		v <<= 10 * (unsigned int)(at - suffix + 1);
	}
	return v;
}

static void set_option(const struct vu_opt *o, const char *arg)
{
	if (o->kind == VU_OPT_FLAG)
		*(bool *)o->to = true;
	else if (o->kind == VU_OPT_NUM)
		*(uint64_t *)o->to = parse_number(o->name, arg);
	else
		*(const char **)o->to = arg;
}

void vu_parse(int argc, char **argv, const char *name, const char *about, const struct vu_opt *opts,
	      size_t n)
{
	size_t total = n + VU_ARRAY(common_opts);
	const struct vu_opt **all = vu_alloc(total * sizeof(*all));
	struct option *lo = vu_alloc((total + 2) * sizeof(*lo));
	int i, ix = 0;

	program = name;
	for (size_t k = 0; k < total; k++) {
		all[k] = k < n ? &opts[k] : &common_opts[k - n];
		lo[k].name = all[k]->name;
		lo[k].has_arg = all[k]->kind == VU_OPT_FLAG ? no_argument : required_argument;
	}
	lo[total] = (struct option){.name = "help", .val = 'h'};
	while ((i = getopt_long(argc, argv, "h", lo, &ix)) != -1) {
		if (i == 'h')
			help(about, opts, n);
		if (i)
			exit(1); /* getopt said why */
		set_option(all[ix], optarg);
	}
	if (optind < argc)
		vu_die("what is \"%s\"? See --help", argv[optind]);
	free(all);
	free(lo);
	open_log();
	vu_deadline((unsigned int)vu.timeout);
}

/* ---- random numbers, time, bytes ---- */

uint64_t vu_rand(struct vu_rng *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15u); /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t vu_below(struct vu_rng *r, uint64_t n)
{
	uint64_t v = vu_rand(r); /* drawn even if not needed, to keep streams alike */

	return n ? v % n : 0;
}

uint64_t vu_range(struct vu_rng *r, uint64_t lo, uint64_t hi)
{
	return hi > lo ? lo + vu_below(r, hi - lo + 1) : (vu_rand(r), lo);
}

bool vu_chance(struct vu_rng *r, unsigned int percent)
{
	return vu_below(r, 100) < percent;
}

void vu_fill(void *p, size_t len, uint64_t seed)
{
	struct vu_rng r = {seed};
	uint8_t *b = p;
	uint64_t v;

	for (; len >= sizeof(v); len -= sizeof(v), b += sizeof(v)) {
		v = vu_rand(&r);
		memcpy(b, &v, sizeof(v));
	}
	v = vu_rand(&r);
	memcpy(b, &v, len);
}

uint64_t vu_hash(const void *p, size_t len, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325u ^ seed, v; /* FNV-1a, eight bytes at a time */
	const uint8_t *b = p;

	for (; len >= sizeof(v); len -= sizeof(v), b += sizeof(v)) {
		memcpy(&v, b, sizeof(v));
		h = (h ^ v) * 0x100000001b3u;
		h ^= h >> 29;
	}
	while (len--)
		h = (h ^ *b++) * 0x100000001b3u;
	return h;
}

static double clock_seconds(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double vu_now(void)
{
	return clock_seconds(CLOCK_MONOTONIC);
}

double vu_cpu_time(void)
{
	return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

void vu_sleep(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

void *vu_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p)
		vu_die("out of memory (%zu bytes)", len);
	return p;
}

/* ---- devices and memory ---- */

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int n;

	list = ibv_get_device_list(&n);
	if (!list)
		vu_die("ibv_get_device_list: %s", strerror(errno));
	for (int i = 0; i < n && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		vu_die("no usable RDMA device \"%s\" among %d", name, n);
	ibv_free_device_list(list);
	return ctx;
}

void vu_dev_open(struct vu_dev *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	d->ctx = open_by_name(name);
	d->is_rxe = !strncmp(name, "rxe", 3);
	d->gid_index = (uint8_t)vu.gid;
	if (ibv_query_device(d->ctx, &d->attr) || ibv_query_port(d->ctx, 1, &d->port) ||
	    ibv_query_gid(d->ctx, 1, d->gid_index, &d->gid))
		vu_die("%s: query failed", name);
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		vu_die("%s: ibv_alloc_pd: %s", name, strerror(errno));
}

void vu_dev_open_pair(struct vu_dev d[2])
{
	vu_dev_open(&d[0], vu.dev);
	vu_dev_open(&d[1], vu.peer_dev);
}

void vu_dev_close(struct vu_dev *d)
{
	int err = ibv_dealloc_pd(d->pd);

	vu_check(!err, "ibv_dealloc_pd: %s", strerror(err));
	vu_check(!ibv_close_device(d->ctx), "ibv_close_device: %s", strerror(errno));
	memset(d, 0, sizeof(*d));
}

uint32_t vu_mtu(const struct vu_dev *d)
{
	return 128u << d->port.active_mtu;
}

struct ibv_mr *vu_reg(struct vu_dev *d, void *p, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, p, len, access);

	vu_check(mr, "ibv_reg_mr of %zu bytes: %s", len, strerror(errno));
	return mr;
}

void vu_mem_alloc(struct vu_mem *m, struct vu_dev *d, size_t len, int access)
{
	void *p;

	if (posix_memalign(&p, 4096, len))
		vu_die("out of memory (%zu bytes)", len);
	memset(p, 0, len);
	m->p = p;
	m->len = len;
	m->mr = vu_reg(d, p, len, access);
}

void vu_mem_free(struct vu_mem *m)
{
	int err = ibv_dereg_mr(m->mr);

	vu_check(!err, "ibv_dereg_mr: %s", strerror(err));
	free(m->p);
	memset(m, 0, sizeof(*m));
}

/* ---- completion queues ---- */

enum vu_poll vu_poll_of(const char *name)
{
	if (!strcmp(name, "cq"))
		return VU_POLL_CQ;
	if (!strcmp(name, "ex"))
		return VU_POLL_EX;
	vu_check(!strcmp(name, "mixed"), "--poll is cq, ex or mixed, not \"%s\"", name);
	return VU_POLL_MIXED;
}

enum vu_post vu_post_of(const char *name)
{
	if (!strcmp(name, "send"))
		return VU_POST_SEND;
	if (!strcmp(name, "wr"))
		return VU_POST_WR;
	vu_check(!strcmp(name, "mixed"), "--api is send, wr or mixed, not \"%s\"", name);
	return VU_POST_MIXED;
}

void vu_cq_create(struct vu_cq *c, struct vu_dev *d, int cqe, struct ibv_comp_channel *channel,
		  enum vu_poll poll, void *cq_context)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = (uint32_t)cqe,
					   .cq_context = cq_context,
					   .channel = channel,
					   .wc_flags = IBV_WC_STANDARD_FLAGS};

	memset(c, 0, sizeof(*c));
	c->channel = channel;
	if (poll == VU_POLL_CQ) {
		c->cq = ibv_create_cq(d->ctx, cqe, cq_context, channel, 0);
	} else {
		c->ex = ibv_create_cq_ex(d->ctx, &attr);
		c->cq = c->ex ? ibv_cq_ex_to_cq(c->ex) : NULL;
	}
	vu_check(c->cq, "creating a CQ of %d entries: %s", cqe, strerror(errno));
	vu_check(c->cq->cqe >= cqe, "asked for %d CQ entries, got %d", cqe, c->cq->cqe);
	vu_check(c->cq->channel == channel, "cq->channel is not the channel given");
	vu_check(c->cq->cq_context == cq_context, "cq->cq_context is not the context given");
}

void vu_cq_destroy(struct vu_cq *c)
{
	int err;

	if (c->unacked)
		ibv_ack_cq_events(c->cq, c->unacked);
	err = ibv_destroy_cq(c->cq);
	vu_check(!err, "ibv_destroy_cq: %s", strerror(err));
	memset(c, 0, sizeof(*c));
}

static void read_ex(struct ibv_cq_ex *ex, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = ex->wr_id;
	wc->status = ex->status;
	wc->qp_num = ibv_wc_read_qp_num(ex);
	wc->vendor_err = ibv_wc_read_vendor_err(ex);
	if (wc->status != IBV_WC_SUCCESS)
		return; /* nothing else is defined */
	wc->opcode = ibv_wc_read_opcode(ex);
	wc->wc_flags = ibv_wc_read_wc_flags(ex);
	wc->byte_len = ibv_wc_read_byte_len(ex);
	wc->imm_data = ibv_wc_read_imm_data(ex);
	wc->src_qp = ibv_wc_read_src_qp(ex);
	wc->slid = (uint16_t)ibv_wc_read_slid(ex);
	wc->sl = ibv_wc_read_sl(ex);
	wc->dlid_path_bits = ibv_wc_read_dlid_path_bits(ex);
}

int vu_cq_poll(struct vu_cq *c, int n, struct ibv_wc *wc, bool ex)
{
	struct ibv_poll_cq_attr attr = {0};
	int err;

	if (!ex || !c->ex)
		return ibv_poll_cq(c->cq, n, wc);
	err = ibv_start_poll(c->ex, &attr);
	if (err == ENOENT)
		return 0;
	if (err)
		return -err;
	read_ex(c->ex, wc);
	ibv_end_poll(c->ex);
	return 1;
}

int vu_cq_collect(struct vu_cq *c, int n, struct ibv_wc *wc, double seconds)
{
	double end = vu_now() + seconds;
	int got = 0, k;

	while (got < n) {
		k = ibv_poll_cq(c->cq, n - got, wc + got);
		vu_check(k >= 0, "ibv_poll_cq: %d", k);
		got += k;
		if (k)
			continue;
		if (vu_now() > end)
			break;
		vu_sleep(50e-6);
	}
	return got;
}

void vu_cq_expect_ok(struct vu_cq *c, uint64_t wr_id, const char *what)
{
	struct ibv_wc wc;

	vu_check(vu_cq_collect(c, 1, &wc, 30) == 1, "%s: no completion", what);
	vu_check(wc.status == IBV_WC_SUCCESS, "%s: %s", what, ibv_wc_status_str(wc.status));
	vu_check(wc.wr_id == wr_id, "%s: wr_id %#" PRIx64 " instead of %#" PRIx64, what, wc.wr_id,
		 wr_id);
}

static const struct {
	const char *name;
	enum ibv_wc_opcode wc;
} opcodes[] = {
	[IBV_WR_RDMA_WRITE] = {"WRITE", IBV_WC_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {"WRITE_IMM", IBV_WC_RDMA_WRITE},
	[IBV_WR_SEND] = {"SEND", IBV_WC_SEND},
	[IBV_WR_SEND_WITH_IMM] = {"SEND_IMM", IBV_WC_SEND},
	[IBV_WR_RDMA_READ] = {"READ", IBV_WC_RDMA_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {"CMP_SWP", IBV_WC_COMP_SWAP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {"FETCH_ADD", IBV_WC_FETCH_ADD},
	[IBV_WR_LOCAL_INV] = {"LOCAL_INV", IBV_WC_LOCAL_INV},
	[IBV_WR_BIND_MW] = {"BIND_MW", IBV_WC_BIND_MW},
	[IBV_WR_SEND_WITH_INV] = {"SEND_INV", IBV_WC_SEND},
};

const char *vu_opcode_name(enum ibv_wr_opcode op)
{
	return op < VU_ARRAY(opcodes) ? opcodes[op].name : "?";
}

enum ibv_wc_opcode vu_wc_opcode(enum ibv_wr_opcode op)
{
	return opcodes[op].wc;
}

/* ---- queue pairs ---- */

static uint64_t send_ops(enum ibv_qp_type type)
{
	uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;

	if (type == IBV_QPT_UD)
		return send;
	if (type == IBV_QPT_UC)
		return send | write;
	return send | write | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
	       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
}

static struct ibv_qp *create_ex(struct vu_dev *d, struct ibv_qp_init_attr *init,
				struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr_ex ex = {.qp_context = init->qp_context,
					 .send_cq = init->send_cq,
					 .recv_cq = init->recv_cq,
					 .srq = init->srq,
					 .cap = init->cap,
					 .qp_type = init->qp_type,
					 .sq_sig_all = init->sq_sig_all,
					 .comp_mask = IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .pd = d->pd,
					 .send_ops_flags = send_ops(init->qp_type)};
	struct ibv_qp *qp = ibv_create_qp_ex(d->ctx, &ex);

	*cap = ex.cap;
	return qp;
}

void vu_qp_create(struct vu_qp *q, struct vu_dev *d, struct ibv_qp_init_attr *init,
		  enum vu_post post)
{
	memset(q, 0, sizeof(*q));
	if (post == VU_POST_SEND) {
		q->qp = ibv_create_qp(d->pd, init);
		q->cap = init->cap;
	} else {
		q->qp = create_ex(d, init, &q->cap);
	}
	vu_check(q->qp, "creating a QP: %s", strerror(errno));
	if (post != VU_POST_SEND) {
		q->ex = ibv_qp_to_qp_ex(q->qp);
		vu_check(q->ex, "ibv_qp_to_qp_ex: %s", strerror(errno));
	}
}

void vu_qp_destroy(struct vu_qp *q)
{
	int err = ibv_destroy_qp(q->qp);

	vu_check(!err, "ibv_destroy_qp: %s", strerror(err));
	memset(q, 0, sizeof(*q));
}

struct vu_link vu_link_default(const struct vu_dev *d)
{
	int rd = d->attr.max_qp_rd_atom < 16 ? d->attr.max_qp_rd_atom : 16;

	return (struct vu_link){.timeout = 20, /* 4 s; rxe 6.1 retransmits badly */
				.retry_cnt = 7,
				.rnr_retry = 7,
				.min_rnr_timer = 12,
				.rd_atomic = (uint8_t)rd,
				.mtu = d->port.active_mtu};
}

struct vu_addr vu_addr_of(const struct vu_dev *d, const struct ibv_qp *qp)
{
	static uint32_t psn; /* a new one each time: packets of an earlier life must not fit */

	psn += 0x13579b;
	return (struct vu_addr){.gid = d->gid,
				.qpn = qp->qp_num,
				.psn = (psn ^ qp->qp_num) & 0xffffff,
				.lid = d->port.lid};
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *to)
{
	int err = ibv_modify_qp(qp, attr, mask);

	vu_check(!err, "ibv_modify_qp to %s: %s", to, strerror(err));
}

void vu_qp_to_init(struct vu_dev *d, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	(void)d;
	if (qp->qp_type == IBV_QPT_UD) {
		attr.qkey = VU_QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = VU_ACCESS;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	modify(qp, &attr, mask, "INIT");
}

static struct ibv_ah_attr ah_attr(const struct vu_dev *d, const struct vu_addr *peer, uint8_t tc)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .dlid = peer->lid,
				    .port_num = 1,
				    .grh = {.dgid = peer->gid,
					    .sgid_index = d->gid_index,
					    .hop_limit = 64,
					    .traffic_class = tc}};
}

void vu_qp_to_rtr(struct vu_dev *d, struct ibv_qp *qp, const struct vu_addr *peer,
		  const struct vu_link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD) {
		attr.path_mtu = l->mtu;
		attr.dest_qp_num = peer->qpn;
		attr.rq_psn = peer->psn;
		attr.ah_attr = ah_attr(d, peer, l->traffic_class);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = l->rd_atomic;
		attr.min_rnr_timer = l->min_rnr_timer;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	modify(qp, &attr, mask, "RTR");
}

void vu_qp_to_rts(struct ibv_qp *qp, uint32_t psn, const struct vu_link *l)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC) {
		attr.timeout = l->timeout;
		attr.retry_cnt = l->retry_cnt;
		attr.rnr_retry = l->rnr_retry;
		attr.max_rd_atomic = l->rd_atomic;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	modify(qp, &attr, mask, "RTS");
}

int vu_qp_to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state vu_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);

	vu_check(!err, "ibv_query_qp: %s", strerror(err));
	return attr.qp_state;
}

void vu_connect(struct vu_dev *a, struct ibv_qp *qa, struct vu_dev *b, struct ibv_qp *qb,
		const struct vu_link *l)
{
	struct vu_addr aa = vu_addr_of(a, qa), ab = vu_addr_of(b, qb);

	vu_qp_to_init(a, qa);
	vu_qp_to_init(b, qb);
	vu_qp_to_rtr(a, qa, &ab, l);
	vu_qp_to_rtr(b, qb, &aa, l);
	vu_qp_to_rts(qa, aa.psn, l);
	vu_qp_to_rts(qb, ab.psn, l);
}

struct ibv_ah *vu_ah(struct vu_dev *d, const struct vu_addr *peer)
{
	struct ibv_ah_attr attr = ah_attr(d, peer, 0);
	struct ibv_ah *ah = ibv_create_ah(d->pd, &attr);

	vu_check(ah, "ibv_create_ah: %s", strerror(errno));
	return ah;
}

/* ---- posting ---- */

static void build_op(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	default:
		vu_die("no ibv_wr_* builder for opcode %d", (int)wr->opcode);
	}
}

static bool has_data(enum ibv_wr_opcode op)
{
	return op != IBV_WR_LOCAL_INV && op != IBV_WR_BIND_MW;
}

/* One buffer: librxe 44's wr_set_inline_data_list sends length 0. */
static void build_inline(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	size_t len = 0, at = 0;
	uint8_t *buf;

	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	buf = vu_alloc(len);
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(buf + at, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		at += wr->sg_list[i].length;
	}
	ibv_wr_set_inline_data(x, buf, len);
	memset(buf, 0x5a, len);
	free(buf);
}

/* A setter is due even where there is no byte: libmlx5 finishes a WQE in it. */
static void build_data(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		build_inline(x, wr);
	else if (wr->num_sge == 1)
		ibv_wr_set_sge(x, wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length);
	else
		ibv_wr_set_sge_list(x, (size_t)wr->num_sge, wr->sg_list);
}

static int post_builders(struct vu_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *first = wr;
	int err;

	ibv_wr_start(q->ex);
	for (; wr; wr = wr->next) {
		q->ex->wr_id = wr->wr_id;
		q->ex->wr_flags = wr->send_flags;
		build_op(q->ex, wr);
		if (q->qp->qp_type == IBV_QPT_UD)
			ibv_wr_set_ud_addr(q->ex, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
					   wr->wr.ud.remote_qkey);
		if (has_data(wr->opcode))
			build_data(q->ex, wr);
	}
	err = ibv_wr_complete(q->ex);
	*bad = err ? first : NULL;
	return err;
}

int vu_qp_post(struct vu_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool wr_api)
{
	if (wr_api && q->ex)
		return post_builders(q, wr, bad);
	return ibv_post_send(q->qp, wr, bad);
}

bool vu_wr_can(const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		return true;
	for (int i = 1; i < wr->num_sge; i++)
		if (wr->sg_list[i].length != wr->sg_list[0].length)
			return false;
	return true;
}

struct ibv_send_wr vu_wr(enum ibv_wr_opcode op, struct ibv_sge *sge, uint64_t wr_id,
			 unsigned int flags)
{
	return (struct ibv_send_wr){.wr_id = wr_id,
				    .sg_list = sge,
				    .num_sge = sge ? 1 : 0,
				    .opcode = op,
				    .send_flags = flags};
}

void vu_wr_remote(struct ibv_send_wr *wr, const void *addr, uint32_t rkey)
{
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = (uintptr_t)addr;
		wr->wr.atomic.rkey = rkey;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)addr;
		wr->wr.rdma.rkey = rkey;
	}
}

void vu_must_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(qp, wr, &bad);

	vu_check(!err, "ibv_post_send: %s", strerror(err));
}

void vu_must_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad = NULL;
	int err = ibv_post_recv(qp, wr, &bad);

	vu_check(!err, "ibv_post_recv: %s", strerror(err));
}

/* ---- the ready-made pair ---- */

static void make_pair_qp(struct vu_pair *p, int i, const struct vu_pair_spec *s)
{
	struct ibv_qp_init_attr init = {.send_cq = p->scq[i].cq,
					.recv_cq = p->rcq[i].cq,
					.cap = {.max_send_wr = s->send_wr,
						.max_recv_wr = s->recv_wr,
						.max_send_sge = s->sge ? s->sge : 1,
						.max_recv_sge = 1,
						.max_inline_data = s->inline_data},
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = s->sig_all};

	vu_qp_create(&p->qp[i], &p->dev[i], &init, VU_POST_SEND);
}

void vu_pair_make_qps(struct vu_pair *p, const struct vu_pair_spec *s)
{
	p->link = s->link ? *s->link : vu_link_default(&p->dev[0]);
	for (int i = 0; i < 2; i++)
		make_pair_qp(p, i, s);
	vu_connect(&p->dev[0], p->qp[0].qp, &p->dev[1], p->qp[1].qp, &p->link);
}

void vu_pair_open(struct vu_pair *p, const struct vu_pair_spec *s)
{
	int cqe = s->cqe ? s->cqe : (int)s->send_wr + 1;
	int access;

	memset(p, 0, sizeof(*p));
	vu_dev_open_pair(p->dev);
	for (int i = 0; i < 2; i++) {
		access = i && s->access ? s->access : VU_ACCESS;
		vu_mem_alloc(&p->mem[i], &p->dev[i], s->mem, access);
		vu_cq_create(&p->scq[i], &p->dev[i], cqe, s->channel ? s->channel[i] : NULL,
			     VU_POLL_CQ, NULL);
		vu_cq_create(&p->rcq[i], &p->dev[i], (int)s->recv_wr + 1, NULL, VU_POLL_CQ, NULL);
	}
	vu_pair_make_qps(p, s);
}

void vu_pair_close(struct vu_pair *p)
{
	for (int i = 0; i < 2; i++) {
		if (p->qp[i].qp)
			vu_qp_destroy(&p->qp[i]);
		vu_cq_destroy(&p->scq[i]);
		vu_cq_destroy(&p->rcq[i]);
		vu_mem_free(&p->mem[i]);
		vu_dev_close(&p->dev[i]);
	}
}

/* ---- two processes ---- */

static struct sockaddr_un socket_name(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	vu_check(strlen(path) < sizeof(a.sun_path), "socket name too long: %s", path);
	strcpy(a.sun_path, path);
	return a;
}

int vu_listen(const char *path)
{
	struct sockaddr_un a = socket_name(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64))
		vu_die("%s: %s", path, strerror(errno));
	return fd;
}

int vu_accept(int fd)
{
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	vu_check(c >= 0, "accept: %s", strerror(errno));
	return c;
}

int vu_dial(const char *path, double patience)
{
	struct sockaddr_un a = socket_name(path);
	double end = vu_now() + patience;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	vu_check(fd >= 0, "socket: %s", strerror(errno));
	while (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		vu_check(vu_now() < end, "%s: %s", path, strerror(errno));
		vu_sleep(0.02);
	}
	return fd;
}

void vu_put(int fd, const void *p, size_t len)
{
	const char *b = p;
	ssize_t n;

	while (len) {
		n = send(fd, b, len, MSG_NOSIGNAL);
		vu_check(n > 0 || errno == EINTR, "writing to the peer: %s", strerror(errno));
		if (n > 0) {
			b += n;
			len -= (size_t)n;
		}
	}
}

bool vu_get(int fd, void *p, size_t len)
{
	char *b = p;
	ssize_t n;

	while (len) {
		n = recv(fd, b, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		b += n;
		len -= (size_t)n;
	}
	return true;
}
