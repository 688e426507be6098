/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file behind the segment. It gets its name only when it is complete: a creator that dies on
 * the way leaves nothing (an unnamed file), and of two creators one wins and the other opens its
 * file.
 *
 * The size is allocated (about 6.5 MiB), not only set: a full /dev/shm is an error here and not
 * a SIGBUS later. Somebody with write permission who truncates the file later does cause SIGBUS
 * in all; there is no defence against that but the file's mode.
 */
#include "scheduler/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/atomic.h"
#include "scheduler/owner.h"

#define SHM_DIR "/dev/shm/"
#define SHM_PATH 320
#define OPEN_TRIES 8 /* created and removed under our hands so often: give up */

/* What open reports about a failure. */
struct trouble {
	char *why;
	size_t len;
	const char *path;
};

__attribute__((format(printf, 3, 4))) static int fail(const struct trouble *t, int err,
						      const char *fmt, ...)
{
	va_list args;
	char phrase[128];

	if (!t->why || !t->len)
		return err;
	va_start(args, fmt);
	vsnprintf(phrase, sizeof(phrase), fmt, args);
	va_end(args);
	snprintf(t->why, t->len, "%s %s", t->path, phrase);
	return err;
}

static int fail_errno(const struct trouble *t, int err, const char *what)
{
	char text[64];

	return fail(t, err, "%s: %s", what, strerror_r(err, text, sizeof(text)));
}

/* "": by uid. No slash: under /dev/shm. 0, EINVAL or ENAMETOOLONG. */
static int make_path(const char *name, char path[SHM_PATH])
{
	int len;

	if (!*name)
		len = snprintf(path, SHM_PATH, SHM_DIR "rnice-%u", (unsigned)geteuid());
	else if (*name == '/')
		len = snprintf(path, SHM_PATH, "%s", name);
	else if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return EINVAL;
	else
		len = snprintf(path, SHM_PATH, SHM_DIR "%s", name);
	return len < SHM_PATH ? 0 : ENAMETOOLONG;
}

static void fill_header(struct shm_header *h)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->magic, SHM_MAGIC, sizeof(h->magic));
	h->version = SHM_VERSION;
	h->layout = SHM_LAYOUT;
	h->size = sizeof(struct shm);
	h->timens = rnice_namespace("time");
}

/* 0 or an errno with a phrase told. */
static int check_header(const struct shm_header *h, const struct trouble *t)
{
	uint64_t timens = rnice_namespace("time");

	if (memcmp(h->magic, SHM_MAGIC, sizeof(h->magic)) != 0)
		return fail(t, EPROTO, "is not an rnice segment");
	if (h->version != SHM_VERSION)
		return fail(t, EPROTO, "is of version %u, not %u: remove it when no rnice runs",
			    h->version, SHM_VERSION);
	if (h->layout != SHM_LAYOUT || h->size != sizeof(struct shm))
		return fail(t, EPROTO, "is of another build of rnice: remove it when none runs");
	if (h->timens && timens && h->timens != timens)
		return fail(t, EPROTO, "belongs to another time namespace");
	return 0;
}

/* Is this a file to trust? For the default name the owner matters: /dev/shm is open to all. */
static int check_file(int fd, bool by_uid, const struct trouble *t)
{
	struct shm_header h;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return fail_errno(t, errno, "cannot be examined");
	if (!S_ISREG(st.st_mode))
		return fail(t, EPROTO, "is not a regular file");
	if (by_uid && st.st_uid != geteuid() && st.st_uid != 0)
		return fail(t, EACCES, "belongs to uid %u", (unsigned)st.st_uid);
	if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return fail(t, EPROTO, "is not an rnice segment");
	if (check_header(&h, t) != 0)
		return EPROTO;
	if (st.st_size != (off_t)sizeof(struct shm))
		return fail(t, EPROTO, "has been truncated or extended");
	return 0;
}

/*
 * An open file of full size with a header and no name. Not every file system has O_TMPFILE;
 * @temp is the name to remove afterwards, or "".
 */
static int open_unnamed(const char *path, char temp[SHM_PATH])
{
	char dir[SHM_PATH];
	struct timespec ts;
	int fd;

	temp[0] = '\0';
	snprintf(dir, sizeof(dir), "%s", path);
	*(strrchr(dir, '/') + 1) = '\0';
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	if (snprintf(temp, SHM_PATH, "%s.%u.%ld", path, (unsigned)getpid(), ts.tv_nsec) >= SHM_PATH)
		temp[SHM_PATH - 1] = '\0';
	return open(temp, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
}

/* Beyond RLIMIT_FSIZE the kernel does not only refuse, it sends SIGXFSZ. */
static bool too_large(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	       limit.rlim_cur < sizeof(struct shm);
}

/* 0 or an errno. */
static int fill_file(int fd)
{
	struct shm_header h;
	int err;

	if (too_large())
		return EFBIG;
	if (fchmod(fd, 0600) != 0) /* whatever the umask took away */
		return errno;
	err = posix_fallocate(fd, 0, sizeof(struct shm));
	if (err)
		return err;
	fill_header(&h);
	return pwrite(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) ? 0 : EIO;
}

/* EEXIST: somebody else was faster. */
static int give_name(int fd, const char *temp, const char *path)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (*temp ? link(temp, path) : linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
		return errno;
	return 0;
}

/* 0: there is a segment now, ours or another's. Otherwise an errno, told. */
static int create(const struct trouble *t)
{
	char temp[SHM_PATH];
	int fd, err;

	fd = open_unnamed(t->path, temp);
	if (fd < 0)
		return fail_errno(t, errno, "cannot be created");
	err = fill_file(fd);
	if (err == ENOSPC)
		fail(t, err, "does not fit: it needs %zu KiB", sizeof(struct shm) >> 10);
	else if (err)
		fail_errno(t, err, "cannot be filled");
	else {
		err = give_name(fd, temp, t->path);
		if (err == EEXIST)
			err = 0;
		if (err)
			fail_errno(t, err, "cannot be created");
	}
	if (*temp)
		unlink(temp);
	close(fd);
	return err;
}

/* An open segment file, checked; or -errno, told. -ENOENT is not told. */
static int open_file(bool by_uid, bool may_read_only, bool *writable, const struct trouble *t)
{
	const int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK; /* a FIFO must not block us */
	int fd, err;

	*writable = true;
	fd = open(t->path, O_RDWR | flags);
	if (fd < 0 && may_read_only && (errno == EACCES || errno == EROFS)) {
		*writable = false;
		fd = open(t->path, O_RDONLY | flags);
	}
	if (fd < 0) {
		err = errno;
		if (err == ELOOP)
			fail(t, err, "is a symbolic link");
		else if (err != ENOENT)
			fail_errno(t, err, "cannot be opened");
		return -err;
	}
	err = check_file(fd, by_uid, t);
	if (err) {
		close(fd);
		return -err;
	}
	return fd;
}

/* open_file(), creating what is missing. */
static int open_or_create(bool by_uid, bool may_create, bool *writable, const struct trouble *t)
{
	int fd, err;

	for (int i = 0; i < OPEN_TRIES; i++) {
		fd = open_file(by_uid, !may_create, writable, t);
		if (fd != -ENOENT)
			return fd;
		if (!may_create)
			return -fail(t, ENOENT, "does not exist");
		err = create(t);
		if (err)
			return -err;
	}
	return -fail(t, EAGAIN, "is removed again and again");
}

static int map_file(int fd, bool writable, struct rnice_segment **out)
{
	struct rnice_segment *seg = malloc(sizeof(*seg));
	int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;

	if (!seg)
		return ENOMEM;
	seg->writable = writable;
	seg->shm = mmap(NULL, sizeof(struct shm), prot, MAP_SHARED, fd, 0);
	if (seg->shm == MAP_FAILED) {
		free(seg);
		return ENOMEM;
	}
	*out = seg;
	return 0;
}

static int open_segment(const char *name, bool may_create, struct rnice_segment **out,
			struct trouble *t)
{
	char path[SHM_PATH];
	bool writable;
	int fd, err;

	t->path = name;
	err = make_path(name, path);
	if (err)
		return fail(t, err, "is not a name under /dev/shm or an absolute path");
	t->path = path;
	fd = open_or_create(!*name, may_create, &writable, t);
	if (fd < 0)
		return -fd;
	err = map_file(fd, writable, out);
	close(fd); /* the mapping keeps the memory */
	if (err)
		fail_errno(t, err, "cannot be mapped");
	return err;
}

int rnice_segment_open(const char *name, bool create_it, struct rnice_segment **out, char *why,
		       size_t why_len)
{
	struct trouble t = {.why = why, .len = why_len};
	int saved = errno, err;

	err = open_segment(name ? name : "", create_it, out, &t);
	errno = saved;
	return err;
}

void rnice_segment_close(struct rnice_segment *seg)
{
	if (!seg)
		return;
	munmap(seg->shm, sizeof(struct shm));
	free(seg);
}
