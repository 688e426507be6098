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
