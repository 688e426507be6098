/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interposed C library calls, and the table that says which file descriptors are ours.
 *
 * Only the device files under /dev/infiniband and the descriptors made for them are touched;
 * everything else goes straight on. The functions below ours are found with RTLD_NEXT, so that
 * another preloaded library (librnice.so, placed before this one) keeps working.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "emu.h"

#define EXPORT __attribute__((visibility("default")))
#define DEV_DIR "/dev/infiniband/"

enum { MAX_FDS = 65536 };

static struct {
	_Atomic uint8_t kind;
	void *obj;
} fds[MAX_FDS];

static struct {
	int (*open)(const char *, int, ...);
	int (*close)(int);
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*write)(int, const void *, size_t);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	int (*ioctl)(int, unsigned long, ...);
	int (*stat)(const char *, struct stat *);
	int (*fstat)(int, struct stat *);
} next;

static void *resolve(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static void resolve_all(void)
{
	next.open = (int (*)(const char *, int, ...))resolve("open");
	next.close = (int (*)(int))resolve("close");
	next.read = (ssize_t(*)(int, void *, size_t))resolve("read");
	next.write = (ssize_t(*)(int, const void *, size_t))resolve("write");
	next.mmap = (void *(*)(void *, size_t, int, int, int, off_t))resolve("mmap");
	next.munmap = (int (*)(void *, size_t))resolve("munmap");
	next.ioctl = (int (*)(int, unsigned long, ...))resolve("ioctl");
	next.stat = (int (*)(const char *, struct stat *))resolve("stat");
	next.fstat = (int (*)(int, struct stat *))resolve("fstat");
}

static void forked(void)
{
	int i;

	/* The child has copies of the descriptors, but the objects stay the parent's. */
	for (i = 0; i < MAX_FDS; i++)
		atomic_store_explicit(&fds[i].kind, FD_NONE, memory_order_relaxed);
	cm_forked();
	nic_forked();
	shm_forked();
}

__attribute__((constructor)) static void emu_init(void)
{
	int err;

	resolve_all();
	err = shm_attach();
	if (err == ENOENT && !getenv("MLX5EMU_DIR"))
		return;
	if (err) {
		fprintf(stderr, "mlx5emu: cannot attach to %s: %s\n", getenv("MLX5EMU_DIR"),
			strerror(err));
		return;
	}
	pthread_atfork(NULL, NULL, forked);
	if (self.seg->cfg.mode == EMU_TRAP && trap_install())
		fprintf(stderr, "mlx5emu: no trap mode: %s\n", strerror(errno));
}

void fd_set_kind(int fd, enum fd_kind kind, void *obj)
{
	if (fd < 0 || fd >= MAX_FDS)
		return;
	fds[fd].obj = obj;
	atomic_store_explicit(&fds[fd].kind, kind, memory_order_release);
}

static enum fd_kind fd_kind(int fd)
{
	if (fd < 0 || fd >= MAX_FDS)
		return FD_NONE;
	return atomic_load_explicit(&fds[fd].kind, memory_order_acquire);
}

void *fd_get(int fd, enum fd_kind kind)
{
	return fd_kind(fd) == kind ? fds[fd].obj : NULL;
}

int real_open(const char *path, int flags, mode_t mode)
{
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int real_close(int fd)
{
	return next.close ? next.close(fd) : (int)syscall(SYS_close, fd);
}

ssize_t real_read(int fd, void *buf, size_t n)
{
	return next.read ? next.read(fd, buf, n) : syscall(SYS_read, fd, buf, n);
}

ssize_t real_write(int fd, const void *buf, size_t n)
{
	return next.write ? next.write(fd, buf, n) : syscall(SYS_write, fd, buf, n);
}

void *real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (next.mmap)
		return next.mmap(addr, len, prot, flags, fd, off);
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int real_munmap(void *addr, size_t len)
{
	return next.munmap ? next.munmap(addr, len) : (int)syscall(SYS_munmap, addr, len);
}

/* The device number behind one of our paths: -1 not ours, -2 the rdma_cm file. */
static int path_dev(const char *path)
{
	unsigned int n;
	char end;

	if (!self.seg || !path || strncmp(path, DEV_DIR, sizeof(DEV_DIR) - 1))
		return -1;
	path += sizeof(DEV_DIR) - 1;
	if (!strcmp(path, "rdma_cm"))
		return -2;
	if (sscanf(path, "uverbs%u%c", &n, &end) == 1 && n < self.seg->cfg.ndevs)
		return n;
	return -1;
}

static int open_ours(int dev)
{
	int fd;

	if (dev == -2)
		return cm_open();
	return ctx_open(dev, &fd) ? fd : -1;
}

static void fake_stat(int dev, struct stat *st)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = dev == -2 ? makedev(EMU_CM_MAJOR, EMU_CM_MINOR)
				: makedev(EMU_MAJOR, EMU_MINOR + dev);
}

static int open_any(int dirfd, const char *path, int flags, mode_t mode)
{
	int dev = path_dev(path);

	if (dev != -1)
		return open_ours(dev);
	if (dirfd == AT_FDCWD && next.open)
		return next.open(path, flags, mode);
	return syscall(SYS_openat, dirfd, path, flags, mode);
}

#define OPEN_MODE(flags, last, mode)                                            \
	do {                                                                    \
		va_list ap;                                                     \
		va_start(ap, last);                                             \
		mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0; \
		va_end(ap);                                                     \
	} while (0)

EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode;

	OPEN_MODE(flags, flags, mode);
	return open_any(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode;

	OPEN_MODE(flags, flags, mode);
	return open_any(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode;

	OPEN_MODE(flags, flags, mode);
	return open_any(dirfd, path, flags, mode);
}

EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	mode_t mode;

	OPEN_MODE(flags, flags, mode);
	return open_any(dirfd, path, flags, mode);
}

static int stat_any(const char *path, struct stat *st)
{
	int dev = path_dev(path);

	if (dev != -1) {
		memset(st, 0, sizeof(*st));
		fake_stat(dev, st);
		return 0;
	}
	return next.stat ? next.stat(path, st)
			 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

EXPORT int stat(const char *restrict path, struct stat *restrict st)
{
	return stat_any(path, st);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return stat_any(path, (struct stat *)st); /* one layout on 64-bit Linux */
}

/* UCX and others look whether they may use the file before opening it. */
EXPORT int access(const char *path, int mode)
{
	if (path_dev(path) != -1)
		return 0;
	return syscall(SYS_access, path, mode);
}

static int fstat_any(int fd, struct stat *st)
{
	int ret = next.fstat ? next.fstat(fd, st) : (int)syscall(SYS_fstat, fd, st);
	struct emu_ctx *ctx;

	if (ret || !self.seg)
		return ret;
	if (fd_kind(fd) == FD_CM) {
		fake_stat(-2, st);
		return 0;
	}
	if (!S_ISREG(st->st_mode))
		return 0;
	ctx = ctx_of_fd(fd);
	if (ctx)
		fake_stat(ctx->dev, st);
	return 0;
}

EXPORT int fstat(int fd, struct stat *st)
{
	return fstat_any(fd, st);
}

EXPORT int fstat64(int fd, struct stat64 *st)
{
	return fstat_any(fd, (struct stat *)st);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct emu_ctx *ctx;
	va_list ap;
	void *arg;
	int err;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request != RDMA_VERBS_IOCTL || !self.seg)
		return next.ioctl ? next.ioctl(fd, request, arg)
				  : (int)syscall(SYS_ioctl, fd, request, arg);
	ctx = ctx_of_fd(fd);
	if (!ctx) {
		errno = ENOTTY;
		return -1;
	}
	err = uverbs_ioctl(ctx, arg);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static void *mmap_any(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	struct emu_ctx *ctx = fd >= 0 && fd_kind(fd) == FD_DEVICE ? fd_get(fd, FD_DEVICE) : NULL;

	if (ctx)
		return uar_mmap(ctx, len, prot, off);
	return real_mmap(addr, len, prot, flags, fd, off);
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return mmap_any(addr, len, prot, flags, fd, off);
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
	return mmap_any(addr, len, prot, flags, fd, off);
}

EXPORT int munmap(void *addr, size_t len)
{
	if (self.seg && uar_munmap(addr, len))
		return 0;
	return real_munmap(addr, len);
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	struct emu_queue *q = fd_get(fd, FD_QUEUE);

	return q ? queue_read(q, buf, n) : real_read(fd, buf, n);
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	if (fd_kind(fd) == FD_CM)
		return cm_write(fd, buf, n);
	return real_write(fd, buf, n);
}

EXPORT int close(int fd)
{
	enum fd_kind kind = fd_kind(fd);
	void *obj;

	if (kind == FD_NONE)
		return real_close(fd);
	obj = fds[fd].obj;
	fd_set_kind(fd, FD_NONE, NULL);
	if (kind == FD_DEVICE)
		ctx_close(obj);
	else if (kind == FD_QUEUE)
		queue_close(obj);
	else
		cm_close(fd, obj);
	return real_close(fd);
}
