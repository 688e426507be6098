/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC of this process: a thread that goes over its queues again and again.
 *
 * It works without a pause while there is something to do, looks on for a short while, and then
 * sleeps, for 20 microseconds at first and up to 4 ms after a second of silence: programs ring
 * doorbells by plain stores, so nobody can wake it for those. Peers that left something for this
 * process wake it by a futex.
 */
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emu.h"

enum { CATCH_UP = 64 };

#define SPIN_NS 10000u
#define SHORT_NS 20000u
#define MEDIUM_NS 50000u
#define NEAR_NS 8000u /* a model's next event is too close to sleep */
#define LONG_NS 250000u
#define IDLE_NS 1000000u
#define ASLEEP_NS 4000000u
#define SLOW_NS 100000000u /* only rdma_cm identifiers: look for dead peers */

/* The thread lets a waiting control call go first: the mutex alone would not be fair. */
void nic_lock(void)
{
	atomic_fetch_add(&self.waiters, 1);
	pthread_mutex_lock(&self.lock);
	atomic_fetch_sub(&self.waiters, 1);
}

void nic_unlock(void)
{
	pthread_mutex_unlock(&self.lock);
}

void nic_own(uint32_t **list, uint32_t *n, uint32_t slot)
{
	uint32_t *grown = realloc(*list, (*n + 1) * sizeof(**list));

	if (!grown)
		abort(); /* nothing sensible is left to do for a test tool */
	grown[(*n)++] = slot;
	*list = grown;
}

void nic_disown(uint32_t *list, uint32_t *n, uint32_t slot)
{
	uint32_t i;

	for (i = 0; i < *n; i++)
		if (list[i] == slot) {
			memmove(list + i, list + i + 1, (*n - i - 1) * sizeof(*list));
			(*n)--;
			return;
		}
}

static void deliver_async(const struct emu_hdr *h, _Atomic uint32_t *events, enum emu_src src,
			  uint32_t slot)
{
	struct ib_uverbs_async_event_desc ev = {.element = h->user_handle};
	uint32_t bits = atomic_exchange(events, 0);
	struct emu_queue *q = ctx_async(h->ctx);

	for (; q && bits; bits &= bits - 1) {
		ev.event_type = __builtin_ctz(bits);
		queue_put(q, &ev, sizeof(ev), src, slot);
	}
}

static void drained(struct emu_qp *qp)
{
	if (qp->sq_drained)
		return;
	qp->sq_drained = 1;
	if (qp->attr.en_sqd_async_notify)
		atomic_fetch_or(&qp->events, 1u << IBV_EVENT_SQ_DRAINED);
}

bool nic_qp_pass(struct emu_qp *qp)
{
	bool busy = false;

	switch (atomic_load(&qp->state)) {
	case IBV_QPS_RTS:
		busy = sq_run(qp);
		break;
	case IBV_QPS_SQD:
		drained(qp);
		break;
	case IBV_QPS_SQE:
		sq_flush(qp);
		break;
	case IBV_QPS_ERR:
		sq_flush(qp);
		rq_flush(qp);
		break;
	default:
		break;
	}
	if (atomic_load_explicit(&qp->events, memory_order_relaxed))
		deliver_async(&qp->h, &qp->events, SRC_QP_ASYNC, qp - self.seg->qp);
	return busy;
}

/*
 * Hardware runs what was posted within microseconds, this thread perhaps later: before a QP
 * leaves RTS, do what hardware would have done by now. With self.lock.
 */
void nic_catch_up(struct emu_qp *qp)
{
	int i;

	for (i = 0; i < CATCH_UP && atomic_load(&qp->state) == IBV_QPS_RTS; i++)
		if (!nic_qp_pass(qp))
			break;
}

static bool pass(void)
{
	struct emu_seg *s = self.seg;
	bool busy = false;
	uint32_t i;

	for (i = 0; i < self.nqps; i++)
		busy |= nic_qp_pass(&s->qp[self.qps[i]]);
	for (i = 0; i < self.ncqs; i++) {
		struct emu_cq *cq = &s->cq[self.cqs[i]];

		cq_check_arm(cq);
		if (atomic_load_explicit(&cq->events, memory_order_relaxed))
			deliver_async(&cq->h, &cq->events, SRC_CQ_ASYNC, self.cqs[i]);
	}
	for (i = 0; i < self.nsrqs; i++) {
		struct emu_srq *srq = &s->srq[self.srqs[i]];

		if (atomic_load_explicit(&srq->events, memory_order_relaxed))
			deliver_async(&srq->h, &srq->events, SRC_SRQ_ASYNC, self.srqs[i]);
	}
	cm_pass();
	return busy;
}

/* How long to sleep after a silence of this length. */
static uint64_t nap_ns(uint64_t idle_ns)
{
	if (self.next_due != UINT64_MAX || idle_ns < 5000000)
		return SHORT_NS;
	if (self.seg->cfg.mode == EMU_TRAP && !self.unfinished)
		return ASLEEP_NS; /* doorbells do not need this thread */
	if (idle_ns < 50000000)
		return MEDIUM_NS;
	if (idle_ns < 200000000)
		return LONG_NS;
	return idle_ns < 1000000000 ? IDLE_NS : ASLEEP_NS;
}

static void nap(struct emu_proc *p, uint32_t seen, uint64_t idle_ns)
{
	uint64_t ns = nap_ns(idle_ns), now = now_ns();
	struct timespec ts = {.tv_nsec = self.nqps ? ns : SLOW_NS};

	/* Be there a little before a model's next event. */
	if (self.next_due < now + ns + NEAR_NS / 2)
		ts.tv_nsec = self.next_due > now + NEAR_NS ? self.next_due - now - NEAR_NS / 2 : 0;
	atomic_store(&p->asleep, 1);
	if (atomic_load(&p->wake) == seen)
		syscall(SYS_futex, &p->wake, FUTEX_WAIT, seen, self.nqps || self.ncms ? &ts : NULL,
			NULL, 0);
	atomic_store(&p->asleep, 0);
}

static void *nic_main(void *arg)
{
	struct emu_proc *p = arg;
	uint64_t idle_since = 0, now;
	uint32_t seen;
	bool busy;

	prctl(PR_SET_NAME, "mlx5emu");
	prctl(PR_SET_TIMERSLACK, 1000);
	/* A NIC does not queue for a CPU behind the programs that poll; works for root only. */
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), -10);
	for (;;) {
		while (atomic_load(&self.waiters))
			sched_yield();
		seen = atomic_load(&p->wake);
		self.next_due = UINT64_MAX;
		self.unfinished = false;
		pthread_mutex_lock(&self.lock);
		busy = pass();
		pthread_mutex_unlock(&self.lock);
		if (busy) {
			idle_since = 0;
			continue;
		}
		now = now_ns();
		if (!idle_since)
			idle_since = now;
		if (self.next_due > now + NEAR_NS && now - idle_since > SPIN_NS)
			nap(p, seen, now - idle_since);
	}
	return NULL;
}

void nic_start(void)
{
	sigset_t all, old;

	nic_lock();
	if (!self.thread_running) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program */
		self.thread_running =
			!pthread_create(&self.thread, NULL, nic_main, &self.seg->proc[self.proc]);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	nic_unlock();
}

/* The same for a program that posts and exits. */
__attribute__((destructor)) static void last_pass(void)
{
	uint32_t i;

	if (!self.thread_running || self.pid != getpid())
		return;
	nic_lock();
	for (i = 0; i < self.nqps; i++)
		nic_catch_up(&self.seg->qp[self.qps[i]]);
	nic_unlock();
}

/* Only the forking thread lives on in a child: its first device starts a new NIC thread. */
void nic_forked(void)
{
	self.thread_running = false;
}
