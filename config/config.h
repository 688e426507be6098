/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every setting of rnice: one table that the parser, `rnice config`, --help and the man page walk.
 *
 * Threads: a struct rnice_config is plain data; fill it from one thread, then read it from any.
 * Ownership: strings inside live in the struct itself; nothing has to be freed.
 */
#ifndef RNICE_CONFIG_H
#define RNICE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rnice_class { RNICE_CLASS_LATENCY, RNICE_CLASS_BULK, RNICE_CLASS_AUTO };
enum rnice_policy {
	RNICE_POLICY_OFF,     /* the program runs as if rnice were not there */
	RNICE_POLICY_OBSERVE, /* count and sample, change nothing */
	RNICE_POLICY_PREEMPT, /* chunk and window follow the measured service rate */
	RNICE_POLICY_STATIC   /* chunk, window and rate are what the user gave */
};
enum rnice_progress { RNICE_PROGRESS_AUTO, RNICE_PROGRESS_SPIN };
enum rnice_log_level { RNICE_LOG_OFF, RNICE_LOG_ERROR, RNICE_LOG_WARN, RNICE_LOG_INFO, RNICE_LOG_DEBUG };

struct rnice_config {
	enum rnice_class cls;
	enum rnice_policy policy;
	enum rnice_progress progress;
	enum rnice_log_level log;
	uint64_t preempt_us; /* RNICE_PREEMPT_US */
	uint64_t chunk;	     /* bytes; 0 = auto (policy preempt), see table for static's default */
	uint64_t window;     /* bytes; 0 = auto */
	uint64_t rate;	     /* bytes per second of one process; 0 = unlimited */
	bool cut_imm;	     /* RNICE_CUT_IMM: may WRITE_WITH_IMM be cut */
	char segment[256];   /* name under /dev/shm, or an absolute path; "" = default by uid */
};

enum rnice_source { RNICE_FROM_DEFAULT, RNICE_FROM_ENVIRONMENT, RNICE_FROM_OPTION };

/* One row of the table. */
struct rnice_option {
	const char *name;    /* "RNICE_CLASS" */
	const char *values;  /* what may be written: "latency|bulk|auto", "1..1000000", ... */
	const char *dflt;    /* default, as a user would write it */
	const char *unit;    /* "microseconds", "bytes", ... or "" */
	const char *help;    /* one sentence or two */
	/* parser's own fields follow in config.c's view; see config/options.c */
};

#endif
