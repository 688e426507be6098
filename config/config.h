/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The settings of one process: what they are, and how they get in force.
 *
 * table.c holds the one table of them; the parser, `rnice config`, --help and the man pages walk
 * it (setting.h). Use: rnice_config_load() in the library, or its parts: init, set ..., finish.
 *
 * Safe inside any process: nothing here allocates, has global state, or asks the locale.
 * Threads: a struct rnice_config is plain data; fill it from one thread, then read it from any.
 * Ownership: strings inside live in the struct itself; nothing has to be freed.
 */
#ifndef RNICE_CONFIG_H
#define RNICE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rnice_class {
	RNICE_CLASS_LATENCY,
	RNICE_CLASS_BULK,
	RNICE_CLASS_AUTO /* each QP is classified by what it sends */
};
enum rnice_policy {
	RNICE_POLICY_OFF,     /* the program runs as if rnice were not there */
	RNICE_POLICY_OBSERVE, /* count and sample, change nothing */
	RNICE_POLICY_PREEMPT, /* chunk and window follow the measured service rate */
	RNICE_POLICY_STATIC   /* chunk, window and rate are what the user gave */
};
/* Ways around verbs: leave them open and count them, or let the NIC look as if it had none. */
enum rnice_direct { RNICE_DIRECT_ALLOW, RNICE_DIRECT_DENY };
enum rnice_progress { RNICE_PROGRESS_AUTO, RNICE_PROGRESS_SPIN };
enum rnice_uar_mode {			  /* which doorbell register a new QP gets */
		      RNICE_UAR_DRIVER,	  /* the driver's choice */
		      RNICE_UAR_SHARED,	  /* one for all QPs of a context */
		      RNICE_UAR_BALANCED, /* threads apart, on a limited number of registers */
		      RNICE_UAR_PER_QP,	  /* one for each QP */
		      RNICE_UAR_AUTO /* the driver's, until threads are seen to get in each other's
					way */
};
enum rnice_log_level {
	RNICE_LOG_OFF,
	RNICE_LOG_ERROR,
	RNICE_LOG_WARN,
	RNICE_LOG_INFO,
	RNICE_LOG_DEBUG
};

/* Where a value in force came from. */
enum rnice_source { RNICE_FROM_DEFAULT, RNICE_FROM_ENVIRONMENT, RNICE_FROM_OPTION };

#define RNICE_SETTING_COUNT 13 /* table.c does not compile with another number of rows */

struct rnice_config {
	enum rnice_class cls;
	enum rnice_policy policy;
	enum rnice_progress progress;
	enum rnice_direct direct;
	enum rnice_uar_mode uar;
	enum rnice_log_level log;
	uint64_t preempt_us;
	uint64_t chunk;	     /* bytes; 0 = auto, after finish never under RNICE_POLICY_STATIC */
	uint64_t window;     /* bytes; likewise */
	uint64_t rate;	     /* bytes per second of this process; 0 = unlimited */
	uint64_t uar_budget; /* doorbell registers that all processes of the host may reserve */
	bool cut_imm;	     /* may RDMA WRITE_WITH_IMM be cut */
	char segment[256];   /* name under /dev/shm, or an absolute path; "" = rnice-<uid> */
	uint8_t source[RNICE_SETTING_COUNT]; /* enum rnice_source, by row of the table */
};

/*
 * Read every RNICE_* entry of @env (as environ; NULL is empty) into *@cfg and finish it. @cfg is
 * valid whatever @env holds: a bad value counts as not given, an unknown name is passed over, of
 * two entries the first counts (as for getenv), an empty value stands for the default.
 *
 * Each problem is told to @report (may be NULL) in one printable line without a newline. Returns
 * the number of problems.
 */
int rnice_config_load(struct rnice_config *cfg, char *const *env,
		      void (*report)(void *arg, const char *line), void *arg);

/* Every setting at its default. */
void rnice_config_init(struct rnice_config *cfg);

/*
 * Give the setting @name ("RNICE_CLASS") the value @value, as if a user had written it. 0, or an
 * errno with *@cfg unchanged and a phrase for the message in @err: ENOENT no such setting (the
 * phrase names the nearest), EINVAL not a legal value (the phrase names the range). @err may be
 * NULL with
 * @errlen 0; RNICE_CONFIG_LINE bytes hold any phrase.
 */
int rnice_config_set(struct rnice_config *cfg, const char *name, const char *value,
		     enum rnice_source source, char *err, size_t errlen);
#define RNICE_CONFIG_LINE 256

/* After the last set: what `auto` means under the policy in force goes into the fields. */
void rnice_config_finish(struct rnice_config *cfg);

#endif
