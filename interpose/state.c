/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shim's start, at the first sign of verbs in a process: settings, segment, slot. Whatever
 * fails is said once, and the program runs on the plain path.
 */
#include "interpose/fast.h"
#include "interpose/shim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct shim shim = {
	.registry = PTHREAD_MUTEX_INITIALIZER,
	.ctxs = TABLE_INIT,
	.cqs = TABLE_INIT,
	.qps = TABLE_INIT,
	.channels = TABLE_INIT,
	.devx = TABLE_INIT,
};

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started;

static void say(void *arg, const char *line)
{
	(void)arg;
	log_warn("%s", line);
}

static bool join_segment(void)
{
	struct rnice_proc_info info = {
		.cls = (uint8_t)shim.cfg.cls,
		.policy = (uint8_t)shim.cfg.policy,
		.uar = (uint8_t)shim.cfg.uar,
		.preempt_ns = shim.cfg.preempt_us * 1000,
		.chunk = shim.cfg.chunk,
		.window = shim.cfg.window,
		.rate = shim.cfg.rate,
	};
	char why[160] = "";
	int err;

	err = rnice_segment_open(shim.cfg.segment, true, &shim.seg, why, sizeof(why));
	if (err) {
		log_warn("scheduler segment: %s (%s); this program runs unscheduled", why,
			 strerror(err));
		return false;
	}
	err = rnice_proc_join(shim.seg, &info, &shim.proc);
	if (err) {
		log_warn("scheduler segment: no slot (%s); this program runs unscheduled",
			 strerror(err));
		rnice_segment_close(shim.seg);
		shim.seg = NULL;
		return false;
	}
	return true;
}

static void before_fork(void)
{
	pthread_mutex_lock(&shim.registry);
}

static void parent_after_fork(void)
{
	pthread_mutex_unlock(&shim.registry);
}

/*
 * The child has its parent's slot, objects and no progress thread. It gives up the former, leaves
 * the objects alone as verbs demands, and starts anew if it opens a device of its own.
 */
static void child_after_fork(void)
{
	pthread_mutex_init(&shim.registry, NULL);
	pthread_mutex_init(&start_lock, NULL);
	progress_child();
	uar_child();
	shim.forks++;
	shim.seg = NULL;
	shim.proc = NULL;
	shim.devs = NULL;
	wr_child();
	fast_forget(); /* inherited objects are native from here on */
	table_forget(&shim.qps);
	table_forget(&shim.cqs);
	table_forget(&shim.channels);
	table_forget(&shim.devx);
	shim.all_cqs = NULL;
	shim.all_channels = NULL;
	store_relaxed(&shim.busy_qps, 0);
	atomic_store(&started, false);
}

static void start(void)
{
	static bool hooked_fork;

	rnice_config_load(&shim.cfg, environ, NULL, NULL);
	rnice_log_set_level(shim.cfg.log); /* RNICE_LOG rules over what is said about the others */
	rnice_config_load(&shim.cfg, environ, say, NULL);
	shim.active = shim.cfg.policy != RNICE_POLICY_OFF && join_segment();
	shim.managing =
		shim.active && shim.cfg.cls != RNICE_CLASS_LATENCY &&
		(shim.cfg.policy == RNICE_POLICY_PREEMPT || shim.cfg.policy == RNICE_POLICY_STATIC);
	if (shim.active && !hooked_fork)
		hooked_fork = !pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

void shim_start(void)
{
	if (atomic_load_explicit(&started, memory_order_acquire))
		return;
	pthread_mutex_lock(&start_lock);
	if (!load_relaxed(&started)) {
		start();
		atomic_store_explicit(&started, true, memory_order_release);
	}
	pthread_mutex_unlock(&start_lock);
}

struct dev *shim_dev(const char *name)
{
	static bool said;
	struct dev *d;
	int err;

	for (d = shim.devs; d; d = d->next)
		if (!strcmp(d->name, name))
			return d;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	strncpy(d->name, name, sizeof(d->name) - 1);
	pthread_mutex_init(&d->pump_lock, NULL);
	pthread_mutex_init(&d->list_lock, NULL);
	err = rnice_port_attach(shim.proc, name, &d->port);
	if (err) {
		if (!said)
			log_warn("device %s: no record in the segment (%s); it runs unscheduled",
				 name, strerror(err));
		said = true;
		free(d);
		return NULL;
	}
	d->next = shim.devs;
	atomic_store(&shim.devs, d); /* filled in: whoever sees it may use it */
	return d;
}
