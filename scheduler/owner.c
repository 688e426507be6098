/* SPDX-License-Identifier: BSD-2-Clause */
#include "scheduler/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_BITS 22 /* Linux's PID_MAX_LIMIT */
#define START_BITS 18
#define NS_BITS 12
#define START_SHIFT PID_BITS
#define NS_SHIFT (PID_BITS + START_BITS)
#define IMAGE_SHIFT (PID_BITS + START_BITS + NS_BITS)

#define THREADS_FIELD 20 /* of /proc/PID/stat, counted from 1: pid, comm, state, ... */
#define START_FIELD 22

static uint64_t low_bits(uint64_t v, unsigned bits)
{
	return v & ((UINT64_C(1) << bits) - 1);
}

/* @bits of a hash that depend on all of @v. */
static uint64_t fold(uint64_t v, unsigned bits)
{
	return v * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits);
}

/* 0 stands for unknown, so a start time whose low bits are 0 counts as 1. */
static uint64_t start_bits(uint64_t start)
{
	uint64_t low = low_bits(start, START_BITS);

	return start && !low ? 1 : low;
}

uint32_t rnice_owner_pid(uint64_t word)
{
	return (uint32_t)low_bits(word, PID_BITS);
}

bool rnice_pid_stat_parse(const char *line, struct rnice_pid_stat *out)
{
	const char *open = strchr(line, '('), *close = strrchr(line, ')'), *p;
	size_t len;
	int field;

	if (!open || !close || close < open || close[1] != ' ' || !close[2])
		return false;
	out->pid = (uint32_t)strtoul(line, NULL, 10);
	len = (size_t)(close - open - 1);
	memset(out->comm, 0, sizeof(out->comm));
	memcpy(out->comm, open + 1, len < sizeof(out->comm) ? len : sizeof(out->comm) - 1);
	out->state = close[2];
	for (field = 3, p = close + 2; field < START_FIELD; field++) {
		if (field == THREADS_FIELD)
			out->threads = strtoull(p, NULL, 10);
		p = strchr(p, ' ');
		if (!p)
			return false;
		p++;
	}
	out->start = strtoull(p, NULL, 10);
	return true;
}

/* False, with errno: could not be read. */
static bool read_stat(const char *path, struct rnice_pid_stat *out)
{
	char line[1024];
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	len = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (len <= 0)
		return false;
	line[len] = '\0';
	return rnice_pid_stat_parse(line, out);
}

uint64_t rnice_namespace(const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static uint64_t image(void)
{
	const void *bytes = (const void *)getauxval(AT_RANDOM); /* 16 of them */
	uint64_t v = 0;

	if (bytes)
		memcpy(&v, bytes, sizeof(v));
	return v;
}

void rnice_owner_self(struct rnice_owner *self)
{
	struct rnice_pid_stat st;
	uint32_t pid = (uint32_t)getpid();
	int saved = errno;

	memset(self, 0, sizeof(*self));
	self->proc = read_stat("/proc/self/stat", &st) && st.pid == pid;
	if (self->proc) {
		self->start = st.start;
		self->pidns = rnice_namespace("pid");
		memcpy(self->comm, st.comm, sizeof(self->comm));
	}
	self->word = low_bits(pid, PID_BITS) | start_bits(self->start) << START_SHIFT |
		     fold(self->pidns, NS_BITS) << NS_SHIFT | fold(image(), 12) << IMAGE_SHIFT;
	errno = saved;
}

/* Its image differs and nothing else does: that was us, before exec. */
static bool was_me(const struct rnice_owner *self, uint64_t word)
{
	return low_bits(self->word, IMAGE_SHIFT) == low_bits(word, IMAGE_SHIFT) &&
	       self->word != word;
}

static enum rnice_life judge_pid(const struct rnice_owner *self, uint64_t word)
{
	uint64_t start = low_bits(word >> START_SHIFT, START_BITS);
	struct rnice_pid_stat st;
	char path[32];

	if (kill((pid_t)rnice_owner_pid(word), 0) != 0 && errno == ESRCH)
		return RNICE_GONE;
	if (!self->proc || !start)
		return RNICE_ALIVE;
	/* Not readable: it went just now, or belongs to a user whose processes are hidden. */
	snprintf(path, sizeof(path), "/proc/%u/stat", rnice_owner_pid(word));
	if (!read_stat(path, &st))
		return RNICE_ALIVE;
	/* A zombie leader of running threads is alive. */
	if ((st.state == 'Z' && st.threads <= 1) || st.state == 'X')
		return RNICE_GONE;
	return start_bits(st.start) == start ? RNICE_ALIVE : RNICE_GONE;
}

enum rnice_life rnice_owner_judge(const struct rnice_owner *self, uint64_t word)
{
	enum rnice_life life;
	int saved = errno;

	if (rnice_owner_pid(word) == 0)
		return RNICE_GONE; /* nobody ever wrote such a word: garbage */
	if (low_bits(word >> NS_SHIFT, NS_BITS) != low_bits(self->word >> NS_SHIFT, NS_BITS))
		return RNICE_FOREIGN;
	if (self->word == word)
		return RNICE_ALIVE;
	if (was_me(self, word))
		return RNICE_GONE;
	life = judge_pid(self, word);
	errno = saved;
	return life;
}
