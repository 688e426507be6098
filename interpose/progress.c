/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The progress thread: one per process that has managed QPs. It moves the queues of a program that
 * does not call verbs itself, and reads the completion channels.
 *
 * While the program polls, the thread only looks in every few milliseconds and finds that each CQ
 * was polled since. For CQs that were not, it takes over: drain, pump, and arm the CQ, so that the
 * next completion wakes it through the channel. With nothing queued and nothing in the NIC it
 * sleeps without a time-out. RNICE_PROGRESS=spin: it never sleeps while anything is under way.
 */
#include "interpose/shim.h"
#include "interpose/uar.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_NS 1000000ull     /* look for a program that stopped polling */
#define TICK_MAX_NS 4000000ull /* ... while it keeps polling */
#define LINGER_NS 20000000ull  /* stay awake this long after the last work */

static struct {
	int ep, wake;
	bool started;
	_Atomic int asleep;
	pthread_mutex_t lock;
} progress = {.ep = -1, .wake = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- its descriptors ---- */

/* progress.lock held */
static bool open_fds(void)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (progress.ep >= 0)
		return true;
	progress.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	progress.ep = epoll_create1(EPOLL_CLOEXEC);
	ev.data.fd = progress.wake;
	if (progress.ep >= 0 && progress.wake >= 0 &&
	    !epoll_ctl(progress.ep, EPOLL_CTL_ADD, progress.wake, &ev))
		return true;
	log_warn("progress thread: no descriptors");
	return false;
}

bool progress_watch(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
	bool ok;

	pthread_mutex_lock(&progress.lock);
	ok = open_fds() && !epoll_ctl(progress.ep, EPOLL_CTL_ADD, fd, &ev);
	pthread_mutex_unlock(&progress.lock);
	return ok;
}

void progress_unwatch(int fd)
{
	epoll_ctl(progress.ep, EPOLL_CTL_DEL, fd, NULL);
}

void progress_wake(void)
{
	static const uint64_t one = 1;

	/*
	 * P1, after the seq_cst add to shim.busy_qps, by this post or by the one that gave the QP
	 * its first work (q->lock is between them): either we see it asleep, or P2 sees our work.
	 */
	if (!atomic_load(&progress.asleep))
		return;
	if (atomic_exchange(&progress.asleep, 0) && write(progress.wake, &one, sizeof(one)) < 0)
		log_debug("progress thread: wake-up lost");
}

/* ---- completion channels ---- */

/* registry held */
static void on_event(struct channel *ch, struct cq *cq)
{
	bool tell;

	if (!cq->managed || load_relaxed(&cq->handed_out)) {
		channel_event(ch, cq);
		return;
	}
	pthread_mutex_lock(&cq->lock);
	cq->hw_armed = false;
	cq_drain(cq, UINT32_MAX);
	pthread_mutex_unlock(&cq->lock);

	/* Armed for solicited events only, the NIC has decided; else a visible completion has. */
	pthread_mutex_lock(&ch->lock);
	tell = cq->app_armed && (cq->app_solicited || cq->seen_since_arm);
	pthread_mutex_unlock(&ch->lock);
	if (tell)
		channel_event(ch, cq);
}

/* registry held */
static void read_channel(int fd)
{
	struct channel *ch;
	struct cq *cq;

	for (ch = shim.all_channels; ch && ch->real.fd != fd; ch = ch->next)
		;
	while (ch && !channel_fetch_real(ch, &cq))
		if (cq)
			on_event(ch, cq);
}

/* ---- progress ---- */

/*
 * registry held. True if the program has left this CQ to us: it has not polled since the last look,
 * or sleeps until an event. Then events must come to us.
 */
static bool drive(struct cq *cq)
{
	uint32_t polls = load_relaxed(&cq->polls);
	bool idle = polls == cq->seen_polls, armed;

	cq->seen_polls = polls;
	if (!channel_needs_us(cq, &armed) || (!idle && !armed))
		return false;
	if (!armed && !load_relaxed(&cq->awaiting) && !load_relaxed(&cq->flush_wanted))
		return false;
	pthread_mutex_lock(&cq->lock);
	cq_drain(cq, UINT32_MAX);
	if (!cq->hw_armed && (armed || load_relaxed(&cq->awaiting))) {
		channel_arm(cq);
		cq_drain(cq, UINT32_MAX); /* what came before the arming makes no event */
	}
	pthread_mutex_unlock(&cq->lock);
	return true;
}

/* registry held. True if any CQ was ours. */
static bool drive_all(void)
{
	bool any = false;
	struct dev *d;
	struct cq *cq;

	for (cq = shim.all_cqs; cq; cq = cq->next)
		any |= drive(cq);
	for (d = shim.devs; d; d = d->next) {
		dev_now(d); /* for time_of_post(), if nothing completes */
		if (atomic_load(&d->waiting))
			dev_pump(d);
	}
	return any;
}

/* How long to sleep when nothing calls: a tick, or until the window may be open again. */
static uint64_t nap(bool ours, uint64_t tick)
{
	uint64_t ns = tick, retry;
	struct dev *d;

	for (d = shim.devs; ours && d; d = d->next)
		if (atomic_load(&d->waiting)) {
			retry = rnice_port_retry_ns(d->port, now_ns());
			ns = retry < ns ? retry : ns;
		}
	return ns;
}

/* @ns: UINT64_MAX sleeps until something happens. */
static int wait_events(struct epoll_event *ev, int max, uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u)};
	int n;

	n = epoll_pwait2(progress.ep, ev, max, ns == UINT64_MAX ? NULL : &ts, NULL);
	if (n < 0 && errno == ENOSYS) /* kernel before 5.11 */
		n = epoll_wait(progress.ep, ev, max,
			       ns == UINT64_MAX ? -1 : (int)((ns + 999999) / 1000000));
	return n;
}

/* Sleep for good unless work came in meanwhile. */
static int sleep_long(struct epoll_event *ev, int max)
{
	int n;

	atomic_store(&progress.asleep, 1);
	n = wait_events(ev, max, atomic_load(&shim.busy_qps) > 0 ? 0 : UINT64_MAX); /* P2 */
	atomic_store(&progress.asleep, 0);
	return n;
}

static void handle(const struct epoll_event *ev, int n)
{
	uint64_t sink;
	int i;

	for (i = 0; i < n; i++) {
		if (ev[i].data.fd != progress.wake)
			read_channel(ev[i].data.fd);
		else if (read(progress.wake, &sink, sizeof(sink)) < 0)
			continue;
	}
}

static void *run(void *arg)
{
	bool spin = shim.cfg.progress == RNICE_PROGRESS_SPIN, ours = false;
	uint64_t tick = TICK_NS, last_work = now_ns(), now;
	struct epoll_event ev[16];
	int n;

	(void)arg;
	uar_ignore_me();
	for (;;) {
		now = now_ns();
		if (load_relaxed(&shim.busy_qps) > 0)
			last_work = now;
		if (now - last_work > LINGER_NS)
			n = sleep_long(ev, 16);
		else
			n = wait_events(ev, 16, spin ? 0 : nap(ours, tick));
		pthread_mutex_lock(&shim.registry);
		handle(ev, n);
		ours = drive_all();
		pthread_mutex_unlock(&shim.registry);
		tick = ours ? TICK_NS : tick < TICK_MAX_NS ? tick * 2 : TICK_MAX_NS;
		if (spin)
			sched_yield();
	}
	return NULL;
}

void progress_start(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_mutex_lock(&progress.lock);
	if (!progress.started && open_fds()) {
		sigfillset(&all);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		pthread_attr_setstacksize(&attr, 256 * 1024);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		err = pthread_create(&thread, &attr, run, NULL);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_attr_destroy(&attr);
		progress.started = !err;
		if (err)
			log_warn("progress thread: not started; queues move with the program's "
				 "calls");
		else
			pthread_setname_np(thread, "rnice");
	}
	pthread_mutex_unlock(&progress.lock);
}

void progress_child(void)
{
	pthread_mutex_init(&progress.lock, NULL);
	if (progress.ep >= 0)
		close(progress.ep);
	if (progress.wake >= 0)
		close(progress.wake);
	progress.ep = -1;
	progress.wake = -1;
	progress.started = false;
	atomic_store(&progress.asleep, 0);
}
