/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An emulated ConnectX below unmodified libibverbs and libmlx5: shared declarations.
 *
 * The library is preloaded and stands where the kernel and the NIC would be: it answers the
 * system calls the two libraries make (hook.c), keeps the objects they create (one file per
 * object), and runs the work queues found in the program's own memory (nic.c, sq.c, rq.c).
 *
 * Who may touch what:
 *  - struct emu_seg is shared by all processes of one `scripts/emulate` run. A slot belongs to
 *    the process in its header; others may only use what the comments below say.
 *  - self.lock (private to a process) covers everything the process's own NIC does: send queues,
 *    its memory, its event queues. Control calls take it with nic_lock().
 *  - Lock order: self.lock, qp->rq_lock, srq->lock, cq->lock, seg->lock. All but the first are
 *    robust: a killed holder is survived.
 *
 * Names and layouts come from public headers only: rdma/ib_user_verbs.h, rdma/mlx5-abi.h,
 * rdma/ib_user_ioctl_cmds.h, rdma/rdma_user_cm.h (kernel uapi) and infiniband/mlx5dv.h.
 */
#ifndef MLX5EMU_EMU_H
#define MLX5EMU_EMU_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define EMU_MAGIC 0x6d6c783565000004ull /* the low bits are the layout version */

enum {
	EMU_DEVS = 16,
	EMU_PROCS = 256,
	EMU_QPS = 8192,
	EMU_CQS = 8192,
	EMU_SRQS = 1024,
	EMU_MRS = 32768, /* memory regions and memory windows */
	EMU_XRCDS = 64,
	EMU_MCASTS = 256,
	EMU_CMIDS = 2048,
	EMU_CMEVS = 2048,
	EMU_GIDS = 4,
	EMU_RWQE_MAX = 512, /* bytes of a receive WQE: max_rq_desc_sz of GET_CONTEXT */
	EMU_SWQE_MAX = 1024,
	EMU_WANTS = 32,	   /* published messages of a QP; these three are powers of two */
	EMU_FLIGHT = 64,   /* packets of a QP that have port time and have not arrived yet */
	EMU_ACKS = 64,	   /* completions that wait for their acknowledgement */
	EMU_ACTIVE = 1024, /* QPs that want a port */
};

enum emu_mode { EMU_THREAD, EMU_TRAP };

/* Fixed for the life of a segment; the creator fills it from the environment (shm.c). */
struct emu_config {
	uint32_t ndevs;
	uint32_t mode; /* enum emu_mode */
	uint32_t mtu;  /* enum ibv_mtu, the active MTU of every port */
	uint32_t link; /* IBV_LINK_LAYER_* */
	uint32_t retry_cap_ms;
	/* Models: 0 means off. None of these numbers is a measurement of a real NIC. */
	uint64_t rate_bps;
	uint64_t latency_ns;
	uint32_t cache_entries;
	uint64_t cache_miss_ns;
	uint32_t rx_units;
	uint64_t rx_unit_ns;
	uint32_t rnr_timing;
};

struct emu_hdr {
	_Atomic uint32_t used; /* 0 free, 1 being made or destroyed, 2 live */
	uint32_t proc;
	uint32_t ctx; /* context number inside the process */
	uint32_t dev;
	uint64_t user_handle;
};

struct emu_mr {
	struct emu_hdr h;
	uint32_t key;	    /* index << 8 | variant; lkey = rkey */
	uint32_t pd;	    /* segment-wide PD number */
	uint32_t access;    /* IBV_ACCESS_* */
	uint32_t mw_type;   /* 0 for a memory region, else IBV_MW_TYPE_* */
	uint32_t mw_qpn;    /* type 2: the QP it is bound to */
	uint32_t mw_bound;  /* a bound window */
	uint32_t mw_parent; /* slot of the region a window is bound to */
	_Atomic uint32_t nr_windows;
	_Atomic uint32_t inflight; /* accesses under way; dereg waits for zero */
	uint64_t start;		   /* address in the owner's memory */
	uint64_t iova;
	uint64_t length;
};

struct emu_cq {
	struct emu_hdr h;
	pthread_mutex_t lock; /* the ring and the producer index; any process */
	uint64_t buf, dbrec;  /* addresses in the owner's memory */
	uint32_t ncqe, cqe_size;
	uint32_t flags;
	uint32_t pi;	   /* next entry to write */
	uint32_t ci_cache; /* last consumer index seen */
	uint32_t resizes;  /* RESIZE entries since then */
	uint32_t sol_pi;   /* pi after the last solicited or failed entry */
	uint32_t error;	   /* overrun */
	_Atomic uint32_t users;
	/* owner only */
	uint32_t arm_word, arm_valid, arm_sn, notified_pi;
	uint32_t has_channel;
	uint64_t channel; /* struct emu_queue *, valid in the owner */
	uint32_t comp_read, async_read;
	_Atomic uint32_t events; /* 1 << IBV_EVENT_*, delivered by the owner */
};

struct emu_srq {
	struct emu_hdr h;
	pthread_mutex_t lock;
	uint64_t buf, dbrec;
	uint32_t nwqe, stride;
	uint32_t max_sge, limit;
	uint32_t srqn, uidx, type;
	uint32_t pd;
	int32_t xrcd, cq;
	uint16_t pi, ci; /* posts seen, posts consumed */
	uint16_t head;	 /* index of the next WQE */
	_Atomic uint32_t users;
	uint32_t async_read;
	_Atomic uint32_t events;
};

/*
 * The send queue as the port model sees it (model.c). The owner publishes what its next WQEs
 * want, any process may hand out port time, the owner takes the packets when they arrive.
 * Covered by the lock of the device whose port the head message uses; acks are the owner's.
 */
struct emu_want {
	uint64_t ready_ns; /* not before: when the doorbell was seen, or the request arrived */
	uint32_t bytes;
	uint16_t port; /* device whose port sends the data */
	uint16_t free; /* needs no port: UMR, NOP */
	uint32_t dqpn;
	uint16_t dest; /* device that receives it */
};

struct emu_packet {
	uint64_t arrive_ns;
	uint32_t bytes;
	uint32_t last; /* of its message */
};

struct emu_cqe {
	uint8_t opcode; /* MLX5_CQE_* */
	uint8_t wqe_opcode;
	uint8_t syndrome, vendor;
	bool solicited;
	bool grh;
	uint8_t sl;
	uint32_t qpn, uidx, byte_cnt, src_qp;
	uint32_t imm; /* big-endian, as on the wire */
	uint16_t wqe_counter, slid;
};

struct emu_ack {
	uint64_t due_ns;
	struct emu_cqe cqe;
};

struct emu_sched {
	uint32_t listed; /* 1 + device whose list it is on */
	uint32_t want_head, want_tail;
	uint32_t granted; /* bytes of the head message that have port time */
	uint32_t flight_head, flight_tail;
	uint32_t ack_head, ack_tail;
	uint16_t published; /* next WQE to publish */
	uint16_t seen_pi[8];
	uint64_t seen_ns[8];
	uint32_t seen_head, seen_tail;
	uint64_t hold_ns; /* nothing before this: RNR */
	struct emu_want want[EMU_WANTS];
	struct emu_packet flight[EMU_FLIGHT];
	struct emu_ack ack[EMU_ACKS];
};

/* The receive side of a QP: rq_lock. */
struct emu_rx {
	uint16_t pi, ci;
	uint32_t busy; /* a multi-packet SEND is arriving */
	uint32_t from_srq;
	uint16_t wqe_index;
	uint32_t nsge;
	uint32_t proc, pd; /* whose memory it is */
	int32_t cq;
	uint32_t uidx;
	uint64_t done;
	struct mlx5_wqe_data_seg sge[EMU_RWQE_MAX / 16];
};

/* The send side of a QP: the owner under its self.lock. */
struct emu_tx {
	uint16_t pi, ci; /* 64-byte units; pi as last seen in the doorbell record */
	uint16_t db_pi;	 /* trap mode: as told by the doorbell */
	uint64_t done;	 /* bytes of the current message that have arrived */
	uint64_t piece;	 /* model: bytes that have just arrived, and when */
	uint64_t arrived_ns;
	uint64_t retry_since, rnr_since, rnr_next;
	uint32_t rnr_count;
};

struct emu_qp {
	struct emu_hdr h;
	uint32_t qpn, type, uidx;
	_Atomic uint32_t state; /* IBV_QPS_*; any process may set IBV_QPS_ERR */
	uint64_t buf, dbrec;
	uint32_t sq_cnt, rq_cnt, rq_shift;
	uint32_t uar_page;
	int32_t scq, rcq, srq, xrcd;
	uint32_t pd;
	uint32_t sig_all;
	struct ib_uverbs_qp_cap cap;
	struct ib_uverbs_modify_qp attr; /* the accumulated attributes */
	uint32_t sq_drained;
	pthread_mutex_t rq_lock;
	struct emu_rx rx;
	struct emu_tx tx;
	uint32_t async_read;
	uint32_t last_wqe_sent, established;
	_Atomic uint32_t events;
	struct emu_sched sched;
};

struct emu_xrcd {
	struct emu_hdr h;
	uint64_t st_dev, st_ino;
	_Atomic uint32_t refs, users;
};

struct emu_mcast {
	_Atomic uint32_t used;
	uint32_t qp;
	uint8_t gid[16];
};

struct emu_proc {
	_Atomic uint32_t used;
	int32_t pid;
	uint64_t start_time;   /* field 22 of /proc/PID/stat: tells a reused pid */
	_Atomic uint32_t wake; /* futex word: the NIC thread sleeps on it */
	_Atomic uint32_t asleep;
};

/* One device port (model.c): under its lock. */
struct emu_dev {
	pthread_mutex_t lock;
	uint64_t port_free_ns;
	_Atomic uint64_t debt_ns; /* ACKs and read requests, charged at the next grant */
	uint32_t nactive, next;
	uint32_t active[EMU_ACTIVE]; /* QP slots, served in turn */
	uint32_t ncached;
	uint32_t cache[256]; /* QPNs, most recently used first */
	uint64_t cache_misses;
	uint64_t rx_free_ns[64];
	uint64_t tx_bytes, tx_packets;
};

struct emu_cmid;
struct emu_cmev;
struct emu_cm; /* cm.c owns the layout */
#define EMU_CM_BYTES (8u << 20)

struct emu_seg {
	_Atomic uint64_t magic;
	struct emu_config cfg;
	pthread_mutex_t lock;	     /* tables: allocation and reclaim */
	pthread_mutex_t atomic_lock; /* RDMA atomics of all devices */
	_Atomic uint32_t next_pd;
	uint32_t qp_hint, cq_hint, srq_hint, mr_hint;
	struct emu_dev dev[EMU_DEVS];
	struct emu_proc proc[EMU_PROCS];
	struct emu_qp qp[EMU_QPS];
	struct emu_cq cq[EMU_CQS];
	struct emu_srq srq[EMU_SRQS];
	struct emu_mr mr[EMU_MRS];
	struct emu_xrcd xrcd[EMU_XRCDS];
	struct emu_mcast mcast[EMU_MCASTS];
	_Alignas(64) unsigned char cm[EMU_CM_BYTES];
};

/* What a queue entry is about, so that reads can be counted and destroys can purge. */
enum emu_src { SRC_NONE, SRC_CQ_COMP, SRC_CQ_ASYNC, SRC_QP_ASYNC, SRC_SRQ_ASYNC, SRC_CM };

/* An event file descriptor of this process: an eventfd counts what `list` holds (queue.c). */
struct emu_queue;

/* A uverbs handle of a context: what it is and the slot or number behind it. */
struct emu_handle {
	uint16_t type; /* UVERBS_OBJECT_* or MLX5_IB_OBJECT_* */
	uint16_t used;
	uint32_t slot;
	_Atomic uint32_t users; /* PD, MR: what depends on it */
	uint64_t aux;
};

/* An opened device file. */
struct emu_ctx {
	uint32_t num, dev;
	uint64_t st_dev, st_ino; /* of the memfd, so that dup()ed fds are recognised */
	uint32_t fds;
	pthread_mutex_t lock; /* handles, uars */
	struct emu_handle *handles;
	uint32_t nhandles, first_free;
	struct emu_queue *async;
	struct emu_uar *uars;
	uint32_t next_uar, next_bfreg;
	uint64_t uctx_resp[16]; /* struct mlx5_ib_alloc_ucontext_resp, for QUERY_CONTEXT */
};

struct emu_uar {
	struct emu_uar *next;
	uint32_t page_id, type, handle;
	int memfd;
	void *app;   /* where the program mapped it */
	void *alias; /* trap mode: our writable view of the same page */
};

/* This process. */
struct emu_self {
	struct emu_seg *seg;
	int proc; /* index into seg->proc, -1 before the first device is opened */
	pid_t pid;
	pthread_mutex_t lock;
	_Atomic uint32_t waiters; /* control calls that want self.lock */
	bool thread_running;
	pthread_t thread;
	uint32_t nqps, ncqs, nsrqs, ncms;
	uint32_t *qps, *cqs, *srqs; /* slots this process owns */
	uint32_t next_ctx;
	uint64_t next_due; /* model: when the NIC thread is needed next */
	bool unfinished;   /* a send queue waits for its peer */
	int trace_fd;
};
extern struct emu_self self;

/* --- shm.c: the segment, process slots, liveness, slot allocation --- */
int shm_attach(void);
int shm_join(void); /* give this process a slot; idempotent */
void shm_forked(void);
bool shm_alive(uint32_t proc);
bool shm_alive_lately(uint32_t proc); /* looks at most every 20 ms */
void shm_reclaim(void);
void shm_lock(pthread_mutex_t *m);
void shm_unlock(pthread_mutex_t *m);
void shm_mutex_init(pthread_mutex_t *m);
void shm_wake(uint32_t proc);
uint64_t now_ns(void);
uint32_t env_size(const char *name, uint32_t dflt);
void emu_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- sysfs.c --- */
int sysfs_generate(const char *dir, uint32_t ndevs, uint32_t link);
void dev_gid(uint32_t dev, uint32_t index, uint8_t gid[16]);
uint32_t dev_ipv4(uint32_t dev);
uint64_t dev_guid(uint32_t dev);
uint32_t dev_lid(uint32_t dev);
int dev_of_gid(const uint8_t gid[16]);

/* --- hook.c: the interposed calls, the fd table and the calls below them --- */
enum fd_kind { FD_NONE, FD_DEVICE, FD_QUEUE, FD_CM };
void fd_set_kind(int fd, enum fd_kind kind, void *obj);
void *fd_get(int fd, enum fd_kind kind);
int real_open(const char *path, int flags, mode_t mode);
int real_close(int fd);
ssize_t real_read(int fd, void *buf, size_t n);
ssize_t real_write(int fd, const void *buf, size_t n);
void *real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
int real_munmap(void *addr, size_t len);
#define EMU_MAJOR 231
#define EMU_MINOR 192
#define EMU_CM_MAJOR 10
#define EMU_CM_MINOR 55

/* --- queue.c: completion channels, async files, rdma_cm events --- */
struct emu_queue *queue_new(void);
int queue_fd(const struct emu_queue *q);
void queue_put(struct emu_queue *q, const void *ev, uint32_t len, enum emu_src src, uint32_t slot);
ssize_t queue_read(struct emu_queue *q, void *buf, size_t n);
void queue_purge(struct emu_queue *q, enum emu_src src, uint32_t slot);
void queue_move(struct emu_queue *from, struct emu_queue *to, enum emu_src src, uint32_t slot);
void queue_close(struct emu_queue *q);

/* --- uverbs.c: the ioctl dispatcher --- */
struct emu_req {
	struct emu_ctx *ctx;
	struct ib_uverbs_ioctl_hdr *hdr;
};
struct ib_uverbs_attr *req_attr(struct emu_req *r, uint16_t id);
int req_in(struct emu_req *r, uint16_t id, void *out, size_t len); /* 0 or errno; pads with 0 */
uint64_t req_u64(struct emu_req *r, uint16_t id, uint64_t dflt);
int req_out(struct emu_req *r, uint16_t id, const void *data, size_t len);
void req_out_handle(struct emu_req *r, uint16_t id, uint64_t value);
int uverbs_ioctl(struct emu_ctx *ctx, void *arg);
int write_cmd(struct emu_req *r, uint32_t cmd);

/* --- context.c: device files and handle tables --- */
struct emu_ctx *ctx_open(uint32_t dev, int *fd);
void ctx_close(struct emu_ctx *ctx);
struct emu_ctx *ctx_of_fd(int fd);
int handle_new(struct emu_ctx *ctx, uint16_t type, uint32_t slot);
struct emu_handle *handle_get(struct emu_ctx *ctx, uint16_t type, uint64_t handle);
void handle_free(struct emu_ctx *ctx, uint64_t handle);
struct emu_queue *ctx_async(uint32_t num);
int handle_find(struct emu_ctx *ctx, uint16_t type, uint32_t slot);

/* --- device.c --- */
int dev_method(struct emu_req *r, uint16_t method);
int devx_method(struct emu_req *r, uint16_t object, uint16_t method);
int dev_query(struct emu_req *r, bool ex);

/* --- uar.c --- */
int uar_method(struct emu_req *r, uint16_t method);
void *uar_mmap(struct emu_ctx *ctx, size_t len, int prot, off_t off);
bool uar_munmap(void *addr, size_t len);
struct emu_uar *uar_at(const void *addr);
void uar_close(struct emu_ctx *ctx);

/* --- pd.c: protection domains, address handles, XRC domains, multicast --- */
int pd_alloc(struct emu_req *r);
int pd_dealloc(struct emu_ctx *ctx, uint64_t handle);
int pd_query(struct emu_req *r);
int ah_create(struct emu_req *r);
int xrcd_open(struct emu_req *r);
int xrcd_close(struct emu_ctx *ctx, uint64_t handle);
int mcast_attach(struct emu_req *r, bool attach);
bool mcast_member(uint32_t qp);
void mcast_forget(uint32_t qp);

/* --- mr.c: memory regions and windows, key look-up, copying between processes --- */
int mr_reg(struct emu_req *r);
int mr_rereg(struct emu_req *r);
int mr_query(struct emu_req *r);
int mr_dereg(struct emu_ctx *ctx, uint64_t handle);
int mw_alloc(struct emu_req *r);
int mw_dealloc(struct emu_ctx *ctx, uint64_t handle);
/* The address for `va` in the key's owner, or 0. On success the region is held until mr_put. */
struct emu_mr *mr_get(uint32_t key, uint32_t proc, uint32_t pd, uint32_t qpn, uint64_t va,
		      uint64_t len, uint32_t access, bool remote, uint64_t *addr);
void mr_put(struct emu_mr *mr);
int mw_bind(struct emu_qp *qp, const uint8_t *w, uint32_t ds);
int mw_invalidate(uint32_t key, uint32_t proc, uint32_t pd, uint32_t qpn);
int mem_read(uint32_t proc, uint64_t addr, void *buf, size_t len);
int mem_record(uint32_t proc, uint64_t addr, uint32_t *value); /* of a doorbell record, untorn */
int mem_write(uint32_t proc, uint64_t addr, const void *buf, size_t len);
int mem_push(uint32_t proc, const struct iovec *to, int nto, const struct iovec *from, int nfrom);
int mem_pull(uint32_t proc, const struct iovec *from, int nfrom, const struct iovec *to, int nto);
bool mem_exists(uint64_t addr);
void copy_ordered(void *dst, const void *src, size_t n);

/* --- cq.c: completion queues and channels; cqe.c writes entries --- */
int channel_create(struct emu_req *r);
int cq_create(struct emu_req *r);
int cq_destroy(struct emu_ctx *ctx, uint64_t handle, struct ib_uverbs_destroy_cq_resp *resp);
int cq_resize(struct emu_req *r);
void cq_check_arm(struct emu_cq *cq);
void cq_doorbell(struct emu_cq *cq, uint32_t word);

void cqe_write(struct emu_cq *cq, const struct emu_cqe *e);

/* --- srq.c --- */
int srq_create(struct emu_req *r);
int srq_destroy(struct emu_ctx *ctx, uint64_t handle, uint32_t *events);
int srq_modify(struct emu_req *r);
int srq_query(struct emu_req *r);
bool srq_take(struct emu_srq *srq, struct emu_rx *rx); /* caller holds srq->lock */
struct emu_srq *srq_find(uint32_t srqn);

/* --- qp.c --- */
int qp_create(struct emu_req *r);
int qp_open(struct emu_req *r);
int qp_destroy(struct emu_ctx *ctx, uint64_t handle, uint32_t *events);
int qp_remove(struct emu_ctx *ctx, uint64_t handle, uint32_t *events); /* as a program asks */
int qp_modify(struct emu_req *r);
int qp_query(struct emu_req *r);
struct emu_qp *qp_find(uint32_t qpn);
void qp_set_error(struct emu_qp *qp, uint32_t event); /* event 0: none */
#define QPN_BASE 0x80u
#define CQN_BASE 0x400u

/* --- nic.c: the thread and the pass over this process's queues --- */
void nic_lock(void);
void nic_unlock(void);
void nic_start(void);
void nic_forked(void);
bool nic_qp_pass(struct emu_qp *qp);
void nic_catch_up(struct emu_qp *qp);
void nic_own(uint32_t **list, uint32_t *n, uint32_t slot);
void nic_disown(uint32_t *list, uint32_t *n, uint32_t slot);

/* --- wqe.c: what a send WQE says --- */
struct emu_wqe {
	uint8_t opcode, fm_ce_se;
	uint32_t ds;
	uint16_t index;
	uint32_t imm; /* as stored */
	uint64_t raddr;
	uint32_t rkey;
	uint64_t swap_add, compare;
	uint32_t xrc_srqn;
	uint32_t dqpn, qkey;
	uint16_t rlid;
	uint8_t rgid[16], sl;
	uint32_t grh_gid_fl;
	bool is_inline;
	uint32_t nsge;
	struct {
		uint64_t addr;
		uint32_t len, lkey;
	} sge[64];
	uint64_t len; /* total payload */
	uint8_t raw[EMU_SWQE_MAX];
};
int wqe_fetch(struct emu_qp *qp, uint16_t index, struct emu_wqe *w);
bool wqe_signaled(const struct emu_qp *qp, const struct emu_wqe *w);

/* --- sq.c: the requester --- */
bool sq_run(struct emu_qp *qp);
void sq_flush(struct emu_qp *qp);

/* --- rq.c: the responder --- */
enum rx_verdict {
	RX_OK,
	RX_RNR,	    /* no receive posted */
	RX_DROP,    /* unreliable services: silently lost */
	RX_ACCESS,  /* NAK: remote access error */
	RX_INVALID, /* NAK: invalid request */
	RX_OP_ERR,  /* NAK: remote operational error */
	RX_GONE,    /* nobody answers */
};
struct rx_msg {
	const struct emu_qp *from;
	const struct emu_wqe *w;
	uint64_t off; /* of this piece in the message */
	uint64_t len;
	bool first, last;
	const struct iovec *iov;
	int niov;
};
enum rx_verdict rq_send(struct emu_qp *qp, const struct rx_msg *m);
enum rx_verdict rq_write(struct emu_qp *qp, const struct rx_msg *m);
enum rx_verdict rq_read(struct emu_qp *qp, const struct rx_msg *m);
enum rx_verdict rq_atomic(struct emu_qp *qp, const struct rx_msg *m, uint64_t *old);
void rq_flush(struct emu_qp *qp);

/* --- model.c: port, latency, QP-context cache, receive units; the owner calls these --- */
bool model_on(void);
void model_publish(struct emu_qp *qp);
bool model_arrived(struct emu_qp *qp, uint64_t now); /* sets tx.piece */
bool model_waiting(const struct emu_qp *qp, uint64_t *due);
void model_restart(struct emu_qp *qp, uint64_t not_before);
void model_forget(struct emu_qp *qp);
bool model_delay(struct emu_qp *qp, const struct emu_wqe *w, const struct emu_cqe *e);
void model_acks(struct emu_qp *qp, uint64_t now); /* UINT64_MAX: all of them */
bool model_acks_full(const struct emu_qp *qp);
uint64_t rnr_timer_ns(uint32_t code);

/* --- trap.c --- */
int trap_install(void);
void trap_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- cm.c --- */
int cm_open(void);
ssize_t cm_write(int fd, const void *buf, size_t n);
void cm_close(int fd, void *obj);
void cm_pass(void);
void cm_reclaim(uint32_t proc);
void cm_forked(void);

#endif
