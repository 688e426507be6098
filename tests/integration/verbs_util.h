/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the integration programs share: options, deadline, seeded random numbers, the canonical log,
 * and short forms of the verbs set-up. Nothing here knows of rnice.
 *
 * Errors of the set-up end the program (vu_die), as no test can go on without it. Errors that are
 * the subject of a test are returned.
 *
 * test_util.c has what is not verbs, post_util.c posting and the ready-made pair, verbs_util.c the
 * other objects.
 *
 * Threads: vu_log, vu_note and vu_at from any; a struct vu_rng and a struct vu_cq belong to one
 * thread at a time, except where a test shares a CQ on purpose.
 */
#ifndef VERBS_UTIL_H
#define VERBS_UTIL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VU_ARRAY(a) (sizeof(a) / sizeof((a)[0]))
#define VU_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* ---- options ---- */
enum vu_opt_kind { VU_OPT_FLAG, VU_OPT_NUM, VU_OPT_STR }; /* bool, uint64_t, const char * */

struct vu_opt {
	const char *name; /* without the dashes */
	enum vu_opt_kind kind;
	void *to;
	const char *help;
};

/* Options that every program has. A program may set other defaults before vu_parse(). */
struct vu_common {
	const char *dev, *peer_dev;
	uint64_t gid;
	uint64_t seed;
	uint64_t timeout; /* seconds until the program gives itself up as hung */
	const char *log;
};
extern struct vu_common vu;

/* @name and @about head the --help text. Opens the log and starts the deadline. */
void vu_parse(int argc, char **argv, const char *name, const char *about, const struct vu_opt *opts,
	      size_t n);

/* ---- outcome ---- */
__attribute__((noreturn)) void vu_die(const char *fmt, ...) VU_PRINTF(1, 2); /* exits 1 */
/* The one summary line of a passed test; returns the exit status 0. */
int vu_pass(const char *fmt, ...) VU_PRINTF(1, 2);

#define vu_check(cond, ...)                  \
	do {                                 \
		if (!(cond))                 \
			vu_die(__VA_ARGS__); \
	} while (0)

/* Where the program is, for the message of a deadline. @what must outlive the wait. */
void vu_at(const char *what);
/* Called when the deadline strikes, to print the state of the test; may be NULL. */
extern void (*vu_on_hang)(void);
/* Restart the deadline with @seconds from now; 0 switches it off (a forked child does). */
void vu_deadline(unsigned int seconds);

/* ---- the log: what native and preloaded runs must have in common ---- */
void vu_log(const char *fmt, ...) VU_PRINTF(1, 2);
void vu_note(const char *fmt, ...) VU_PRINTF(1, 2); /* a line "# ...", not compared */

/* ---- random numbers, time, bytes ---- */
struct vu_rng {
	uint64_t state;
};
uint64_t vu_rand(struct vu_rng *r);
uint64_t vu_below(struct vu_rng *r, uint64_t n);	       /* 0 .. n-1; 0 when n is 0 */
uint64_t vu_range(struct vu_rng *r, uint64_t lo, uint64_t hi); /* lo .. hi */
bool vu_chance(struct vu_rng *r, unsigned int percent);
void vu_fill(void *p, size_t len, uint64_t seed); /* a pattern that differs everywhere */
uint64_t vu_hash(const void *p, size_t len, uint64_t seed);

double vu_now(void);	  /* CLOCK_MONOTONIC, seconds */
double vu_cpu_time(void); /* this process's, seconds */
void vu_sleep(double seconds);

void *vu_alloc(size_t len); /* zeroed; dies when there is none */

/* ---- devices and memory ---- */
struct vu_dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint8_t gid_index;
	bool is_rxe; /* some checks know its habits */
};
void vu_dev_open(struct vu_dev *d, const char *name);
void vu_dev_open_pair(struct vu_dev d[2]); /* vu.dev and vu.peer_dev */
void vu_dev_close(struct vu_dev *d);
uint32_t vu_mtu(const struct vu_dev *d); /* bytes */

#define VU_ACCESS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct vu_mem {
	uint8_t *p;
	size_t len;
	struct ibv_mr *mr;
};
void vu_mem_alloc(struct vu_mem *m, struct vu_dev *d, size_t len, int access);
void vu_mem_free(struct vu_mem *m);
struct ibv_mr *vu_reg(struct vu_dev *d, void *p, size_t len, int access);

/* ---- completion queues ---- */
enum vu_poll { VU_POLL_CQ, VU_POLL_EX, VU_POLL_MIXED };
enum vu_post { VU_POST_SEND, VU_POST_WR, VU_POST_MIXED };
/* Poll by start_poll this time? */
bool vu_poll_ex(enum vu_poll poll, struct vu_rng *r);
/* "cq|ex|mixed" and "send|wr|mixed"; die on anything else. */
enum vu_poll vu_poll_of(const char *name);
enum vu_post vu_post_of(const char *name);

struct vu_cq {
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex; /* set when created with ibv_create_cq_ex */
	bool batches;	      /* next_poll works; librxe 44 unlocks twice when it finds no entry */
	struct ibv_comp_channel *channel;
	unsigned int unacked; /* events got, not yet acknowledged */
};
/* @channel may be NULL. */
void vu_cq_create(struct vu_cq *c, struct vu_dev *d, int cqe, struct ibv_comp_channel *channel,
		  enum vu_poll poll, void *cq_context);
void vu_cq_destroy(struct vu_cq *c);
/* As ibv_poll_cq(). With @ex, through start_poll, and next_poll if the provider's works. */
int vu_cq_poll(struct vu_cq *c, int n, struct ibv_wc *wc, bool ex);
/* Poll with ibv_poll_cq until @n entries are there or @seconds are over; the number got. */
int vu_cq_collect(struct vu_cq *c, int n, struct ibv_wc *wc, double seconds);
/* One signaled success, or die saying @what went wrong. */
void vu_cq_expect_ok(struct vu_cq *c, uint64_t wr_id, const char *what);

const char *vu_opcode_name(enum ibv_wr_opcode op);
/* The completion opcode of a successful send WR. */
enum ibv_wc_opcode vu_wc_opcode(enum ibv_wr_opcode op);

/* ---- queue pairs ---- */
struct vu_qp {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;  /* set when created for ibv_wr_* */
	struct ibv_qp_cap cap; /* as granted */
};
/* The fields of @init are those of ibv_create_qp; @post decides how the QP is created. */
void vu_qp_create(struct vu_qp *q, struct vu_dev *d, struct ibv_qp_init_attr *init,
		  enum vu_post post);
void vu_qp_destroy(struct vu_qp *q);

/* How a connection behaves; vu_link_default() gives patient values. */
struct vu_link {
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic;
	enum ibv_mtu mtu;
	uint8_t traffic_class;
};
struct vu_link vu_link_default(const struct vu_dev *d);

/* What a peer must know. */
struct vu_addr {
	union ibv_gid gid;
	uint32_t qpn, psn;
	uint16_t lid;
};
struct vu_addr vu_addr_of(const struct vu_dev *d, const struct ibv_qp *qp);

#define VU_QKEY 0x11223344u

void vu_qp_to_init(struct vu_dev *d, struct ibv_qp *qp);
void vu_qp_to_rtr(struct vu_dev *d, struct ibv_qp *qp, const struct vu_addr *peer,
		  const struct vu_link *l);
void vu_qp_to_rts(struct ibv_qp *qp, uint32_t psn, const struct vu_link *l); /* own psn */
int vu_qp_to_state(struct ibv_qp *qp, enum ibv_qp_state state); /* ERR, RESET; 0 or errno */
enum ibv_qp_state vu_qp_state(struct ibv_qp *qp);		/* as queried */
/* RESET to RTS on both sides. */
void vu_connect(struct vu_dev *a, struct ibv_qp *qa, struct vu_dev *b, struct ibv_qp *qb,
		const struct vu_link *l);
struct ibv_ah *vu_ah(struct vu_dev *d, const struct vu_addr *peer);

/*
 * Post a chain as ibv_post_send() would, through it or through ibv_wr_*. With ibv_wr_* a refused
 * chain is refused as a whole, so *bad is its first WR. A WR for ibv_wr_* must suit vu_wr_can().
 */
int vu_qp_post(struct vu_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool wr_api);
/* Can librxe's ibv_wr_* setters express this SG list? (wr_set_sge_list counts the first length.) */
bool vu_wr_can(const struct ibv_send_wr *wr);

/* A plain single-SGE WR. */
struct ibv_send_wr vu_wr(enum ibv_wr_opcode op, struct ibv_sge *sge, uint64_t wr_id,
			 unsigned int flags);
void vu_wr_remote(struct ibv_send_wr *wr, const void *addr, uint32_t rkey);
/* Post or die. */
void vu_must_post(struct ibv_qp *qp, struct ibv_send_wr *wr);
void vu_must_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr);

/* ---- a ready-made pair of RC QPs, for the tests that need no more ---- */
struct vu_pair {
	struct vu_dev dev[2];
	struct vu_cq scq[2], rcq[2];
	struct vu_qp qp[2];
	struct vu_mem mem[2];
	struct vu_link link;
};
struct vu_pair_spec {
	size_t mem;
	unsigned int send_wr, recv_wr, sge, inline_data;
	int cqe;
	int access; /* of mem[1]; 0: VU_ACCESS */
	bool sig_all;
	enum vu_post post;
	const struct vu_link *link;	   /* NULL: default */
	struct ibv_comp_channel **channel; /* [2] for the send CQs, or NULL */
};
void vu_pair_open(struct vu_pair *p, const struct vu_pair_spec *s); /* devices included */
void vu_pair_close(struct vu_pair *p);
/* Only the QPs: for tests that use up several pairs on open devices. */
void vu_pair_make_qps(struct vu_pair *p, const struct vu_pair_spec *s);

/* ---- two processes ---- */
int vu_listen(const char *path); /* a unix socket; dies on trouble */
int vu_accept(int fd);
int vu_dial(const char *path, double patience); /* waits for the server; dies after @patience s */
void vu_put(int fd, const void *p, size_t len);
bool vu_get(int fd, void *p, size_t len); /* false: the other end went away */

#endif
