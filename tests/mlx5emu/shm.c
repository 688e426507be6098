/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The segment that all processes of one run share: creation, process slots, liveness, locks.
 *
 * A process slot is claimed with pid and start time. A slot whose process is gone (or a zombie)
 * is reclaimed with everything in it, by whoever joins next or misses an answer.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emu.h"

struct emu_self self = {
	.proc = -1,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.trace_fd = -1,
};

void emu_log(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n, err = errno;

	if (!getenv("MLX5EMU_VERBOSE"))
		return;
	n = snprintf(line, sizeof(line), "mlx5emu[%d]: ", getpid());
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (real_write(STDERR_FILENO, line, n) < 0)
		n = 0; /* nowhere left to say so */
	errno = err;
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + ts.tv_nsec;
}

void shm_mutex_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(m, &attr);
	pthread_mutexattr_destroy(&attr);
}

void shm_lock(pthread_mutex_t *m)
{
	/* A holder that was killed leaves at worst one half-done operation behind. */
	if (pthread_mutex_lock(m) == EOWNERDEAD)
		pthread_mutex_consistent(m);
}

void shm_unlock(pthread_mutex_t *m)
{
	pthread_mutex_unlock(m);
}

uint32_t env_size(const char *name, uint32_t dflt)
{
	const char *v = getenv(name);

	return v && *v ? (uint32_t)strtoul(v, NULL, 0) : dflt;
}

static uint64_t env_u64(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? strtoull(v, NULL, 0) : 0;
}

static void config_from_env(struct emu_config *c)
{
	const char *mode = getenv("MLX5EMU_MODE"), *link = getenv("MLX5EMU_LINK");

	c->ndevs = env_size("MLX5EMU_DEVICES", 1);
	if (c->ndevs < 1 || c->ndevs > EMU_DEVS)
		c->ndevs = 1;
	c->mode = mode && !strcmp(mode, "trap") ? EMU_TRAP : EMU_THREAD;
	c->link = link && !strcmp(link, "ib") ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	/* 1024 is what RoCE gets on Ethernet frames of 1500 bytes. */
	c->mtu = env_size("MLX5EMU_MTU",
			  c->link == IBV_LINK_LAYER_ETHERNET ? IBV_MTU_1024 : IBV_MTU_4096);
	c->retry_cap_ms = env_size("MLX5EMU_RETRY_CAP_MS", 0);
	c->rate_bps = env_u64("MLX5EMU_RATE_BPS");
	c->latency_ns = env_u64("MLX5EMU_LATENCY_NS");
	c->cache_entries = env_size("MLX5EMU_CACHE_ENTRIES", 0);
	c->cache_miss_ns = env_u64("MLX5EMU_CACHE_MISS_NS");
	c->rx_units = env_size("MLX5EMU_RX_UNITS", 0);
	c->rx_unit_ns = env_u64("MLX5EMU_RX_UNIT_NS");
	c->rnr_timing = env_size("MLX5EMU_RNR_TIMING", 0);
	if (c->rx_units > 64)
		c->rx_units = 64;
	if (c->cache_entries > 256)
		c->cache_entries = 256;
}

static void segment_init(struct emu_seg *seg)
{
	uint32_t i;

	config_from_env(&seg->cfg);
	shm_mutex_init(&seg->lock);
	shm_mutex_init(&seg->atomic_lock);
	for (i = 0; i < EMU_DEVS; i++)
		shm_mutex_init(&seg->dev[i].lock);
	atomic_store(&seg->next_pd, 1);
	atomic_store(&seg->magic, EMU_MAGIC);
}

static int segment_map(const char *dir, int lockfd)
{
	char path[PATH_MAX];
	struct emu_seg *seg;
	int fd, err;

	snprintf(path, sizeof(path), "%s/nic", dir);
	flock(lockfd, LOCK_EX);
	fd = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*seg))) {
		err = errno;
		flock(lockfd, LOCK_UN);
		return err;
	}
	seg = real_mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	real_close(fd);
	err = seg == MAP_FAILED ? errno : 0;
	if (!err && !atomic_load(&seg->magic)) {
		segment_init(seg);
		err = sysfs_generate(dir, seg->cfg.ndevs, seg->cfg.link);
	}
	flock(lockfd, LOCK_UN);
	if (!err && atomic_load(&seg->magic) != EMU_MAGIC)
		err = EPROTO; /* made by another version of this library */
	if (!err)
		self.seg = seg;
	return err;
}

int shm_attach(void)
{
	const char *dir = getenv("MLX5EMU_DIR");
	char path[PATH_MAX];
	int fd, err;

	if (!dir || self.seg)
		return dir ? 0 : ENOENT;
	fd = real_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	err = segment_map(dir, fd);
	real_close(fd);
	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/sysfs", dir);
	setenv("SYSFS_PATH", path, 1);
	return 0;
}

/* Start time and state from /proc/PID/stat (proc(5)); false when there is no such process. */
static bool proc_stat(pid_t pid, uint64_t *start, char *state)
{
	char path[64], buf[1024], *p;
	unsigned long long t;
	ssize_t n;
	int fd, i;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = real_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	n = real_read(fd, buf, sizeof(buf) - 1);
	real_close(fd);
	if (n <= 0)
		return false;
	buf[n] = 0;
	p = strrchr(buf, ')');
	if (!p)
		return false;
	*state = p[2];
	for (i = 0, p++; i < 19 && p; i++) /* from before field 3 to before field 22 */
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, "%llu", &t) != 1)
		return false;
	*start = t;
	return true;
}

bool shm_alive(uint32_t proc)
{
	struct emu_proc *p = &self.seg->proc[proc];
	uint64_t start;
	char state;

	if (!atomic_load(&p->used))
		return false;
	if ((int)proc == self.proc)
		return true;
	if (!proc_stat(p->pid, &start, &state))
		return false;
	return start == p->start_time && state != 'Z' && state != 'X';
}

bool shm_alive_lately(uint32_t proc)
{
	static struct {
		uint64_t looked, start_time;
		bool alive;
	} memo[EMU_PROCS];
	struct emu_proc *p = &self.seg->proc[proc];
	uint64_t now;

	if ((int)proc == self.proc)
		return true;
	if (!atomic_load(&p->used))
		return false;
	now = now_ns();
	/* A slot may have got another owner since. */
	if (memo[proc].start_time != p->start_time || now - memo[proc].looked > 20000000) {
		memo[proc].alive = shm_alive(proc);
		memo[proc].start_time = p->start_time;
		memo[proc].looked = now;
	}
	return memo[proc].alive;
}

static void free_objects(uint32_t proc)
{
	struct emu_seg *s = self.seg;
	uint32_t i;

	for (i = 0; i < EMU_QPS; i++)
		if (atomic_load(&s->qp[i].h.used) && s->qp[i].h.proc == proc) {
			mcast_forget(i);
			atomic_store(&s->qp[i].h.used, 0);
		}
	for (i = 0; i < EMU_SRQS; i++)
		if (s->srq[i].h.proc == proc)
			atomic_store(&s->srq[i].h.used, 0);
	for (i = 0; i < EMU_CQS; i++)
		if (s->cq[i].h.proc == proc)
			atomic_store(&s->cq[i].h.used, 0);
	for (i = 0; i < EMU_MRS; i++)
		if (s->mr[i].h.proc == proc)
			atomic_store(&s->mr[i].h.used, 0);
}

/* The caller holds seg->lock. */
static void reclaim_locked(void)
{
	uint32_t i;

	for (i = 0; i < EMU_PROCS; i++) {
		if (!atomic_load(&self.seg->proc[i].used) || shm_alive(i))
			continue;
		free_objects(i);
		cm_reclaim(i);
		atomic_store(&self.seg->proc[i].used, 0);
	}
}

void shm_reclaim(void)
{
	shm_lock(&self.seg->lock);
	reclaim_locked();
	shm_unlock(&self.seg->lock);
}

int shm_join(void)
{
	struct emu_proc *p;
	uint64_t start;
	char state;
	int i;

	if (self.proc >= 0)
		return 0;
	if (!self.seg || !proc_stat(getpid(), &start, &state))
		return ENODEV;
	shm_lock(&self.seg->lock);
	reclaim_locked();
	for (i = 0; i < EMU_PROCS && atomic_load(&self.seg->proc[i].used); i++)
		;
	if (i == EMU_PROCS) {
		shm_unlock(&self.seg->lock);
		return ENOSPC;
	}
	p = &self.seg->proc[i];
	p->pid = getpid();
	p->start_time = start;
	atomic_store(&p->asleep, 0);
	atomic_store(&p->used, 1);
	self.proc = i;
	self.pid = p->pid;
	shm_unlock(&self.seg->lock);
	/* Under Yama's restricted ptrace, peers may reach our memory only if we say so. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	return 0;
}

/* In a forked child nothing of the parent's may be touched: it starts without objects. */
void shm_forked(void)
{
	self.proc = -1;
	pthread_mutex_init(&self.lock, NULL);
	atomic_store(&self.waiters, 0);
	self.thread_running = false;
	self.nqps = self.ncqs = self.nsrqs = self.ncms = 0;
}

void shm_wake(uint32_t proc)
{
	struct emu_proc *p = &self.seg->proc[proc];

	if ((int)proc == self.proc && !atomic_load(&p->asleep))
		return;
	atomic_fetch_add(&p->wake, 1);
	if (atomic_load(&p->asleep))
		syscall(SYS_futex, &p->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}
