/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of settings. To add one: a field in struct rnice_config, a row here, one more in
 * RNICE_SETTING_COUNT; parser, `rnice config`, options, --help and man pages follow. Names that are
 * spoken for: RNICE_WEIGHT, RNICE_SLO_US.
 */
#include "config/setting.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* In the order of the enums in config.h. */
static const char *const class_words[] = {"latency", "bulk", "auto", NULL};
static const char *const policy_words[] = {"off", "observe", "preempt", "static", NULL};
static const char *const progress_words[] = {"auto", "spin", NULL};
static const char *const direct_words[] = {"allow", "deny", NULL};
static const char *const uar_words[] = {"driver", "shared", "balanced", "per-qp", "auto", NULL};
static const char *const log_words[] = {"off", "error", "warn", "info", "debug", NULL};
static const char *const switch_words[] = {"off", "on", NULL};

/* One row reads better than one field per line. */
/* clang-format off */

/* The field picks its own type and words; a field of any other type does not compile. */
#define MEMBER(f) (((struct rnice_config *)0)->f)
#define FIELD(f) \
	.offset = offsetof(struct rnice_config, f), \
	.size = sizeof(MEMBER(f)), \
	.type = _Generic(MEMBER(f), \
		enum rnice_class: RNICE_TYPE_WORD, \
		enum rnice_policy: RNICE_TYPE_WORD, \
		enum rnice_progress: RNICE_TYPE_WORD, \
		enum rnice_direct: RNICE_TYPE_WORD, \
		enum rnice_uar_mode: RNICE_TYPE_WORD, \
		enum rnice_log_level: RNICE_TYPE_WORD, \
		bool: RNICE_TYPE_SWITCH, \
		uint64_t: RNICE_TYPE_NUMBER, \
		char *: RNICE_TYPE_NAME), \
	.words = _Generic(MEMBER(f), \
		enum rnice_class: class_words, \
		enum rnice_policy: policy_words, \
		enum rnice_progress: progress_words, \
		enum rnice_direct: direct_words, \
		enum rnice_uar_mode: uar_words, \
		enum rnice_log_level: log_words, \
		bool: switch_words, \
		default: NULL)

#define KIB UINT64_C(1024)
#define GIB (KIB * KIB * KIB)
#define TIB (KIB * GIB)
#define KBIT UINT64_C(125) /* bytes per second */
#define TBIT (KBIT * 1000 * 1000 * 1000)

const struct rnice_setting rnice_settings[] = {
	{ .name = "RNICE_CLASS", .letter = 'c', .dflt = "auto", FIELD(cls),
	  .help = "What this program's traffic needs: short waiting (latency), bandwidth (bulk), or"
		  " let rnice tell from what each queue pair sends (auto)." },
	{ .name = "RNICE_POLICY", .letter = 'p', .dflt = "preempt", FIELD(policy),
	  .help = "What rnice does: nothing (off), count and time the posts of latency traffic only (observe), cut and hold back"
		  " bulk so that latency traffic can pass (preempt), or the same with fixed sizes"
		  " (static)." },
	{ .name = "RNICE_PREEMPT_US", .dflt = "10", FIELD(preempt_us),
	  .unit = RNICE_UNIT_USEC, .min = 1, .max = 100000,
	  .help = "How long a latency message may wait behind bulk bytes already in the NIC. Smaller"
		  " values mean shorter waits and more, smaller work requests." },
	{ .name = "RNICE_CHUNK", .dflt = "auto", .static_dflt = "64k", .zero = "auto", FIELD(chunk),
	  .unit = RNICE_UNIT_BYTES, .min = 1, .max = GIB,
	  .help = "Longest piece of a bulk message that the NIC gets at once; auto: while latency"
		  " traffic is active, half of what the NIC moves in RNICE_PREEMPT_US, but at least"
		  " one MTU; else what it moves in 1 ms, but at most 1 MiB." },
	{ .name = "RNICE_WINDOW", .dflt = "auto", .static_dflt = "256k", .zero = "auto",
	  FIELD(window), .unit = RNICE_UNIT_BYTES, .min = 1, .max = TIB,
	  .help = "How many bytes of managed traffic may be inside one NIC at once." },
	{ .name = "RNICE_RATE", .dflt = "unlimited", .zero = "unlimited", FIELD(rate),
	  .unit = RNICE_UNIT_RATE, .min = KBIT, .max = 10 * TBIT,
	  .help = "Bandwidth cap of this process." },
	{ .name = "RNICE_PROGRESS", .dflt = "auto", FIELD(progress),
	  .help = "Who moves queued work while the program makes no verbs calls: a thread that sleeps"
		  " until there is work (auto), or one that spins and takes a core for it (spin)." },
	{ .name = "RNICE_CUT_IMM", .dflt = "on", FIELD(cut_imm),
	  .help = "Whether an RDMA WRITE with immediate may be cut. The receiver's completion then"
		  " reports in byte_len the last piece only; a program whose receiver reads byte_len of"
		  " IBV_WC_RECV_RDMA_WITH_IMM needs off." },
	{ .name = "RNICE_DIRECT", .dflt = "allow", FIELD(direct),
	  .help = "Interfaces of vendors that go around verbs (DevX, queues handed out by"
		  " mlx5dv_init_obj and the like): left open and counted as uncontrolled (allow), or"
		  " made to look unsupported, so that programs fall back to verbs (deny)." },
	/*
	 * The driver's choice is the default: no other one can be proven to be better for every
	 * program. A QP on a thread domain is posted to under one lock from the building of its work
	 * requests to the doorbell, where the driver locks the doorbell alone; so a register that two
	 * threads share after all costs more than the driver's, and who will post is only known when
	 * it is too late (auto guesses from the past).
	 */
	{ .name = "RNICE_UAR", .dflt = "driver", FIELD(uar),
	  .help = "Which doorbell register of an mlx5 NIC a new queue pair gets: the driver's choice"
		  " (driver), registers that threads do not share as far as possible (balanced), one for"
		  " each queue pair (per-qp), one for all (shared, for experiments), or the driver's until"
		  " it would share registers, and then one for each thread that posts to its own queue"
		  " pairs and one for each queue pair made for others, while there are any (auto)."
		  " Without effect on other NICs." },
	{ .name = "RNICE_UAR_BUDGET", .dflt = "512", FIELD(uar_budget),
	  .unit = RNICE_UNIT_REGISTERS, .min = 1, .max = 65536,
	  .help = "How many doorbell registers all rnice processes that share a segment may reserve on"
		  " one device; what is beyond goes where the driver puts it." },
	{ .name = "RNICE_SEGMENT", .dflt = "rnice-<uid>", FIELD(segment),
	  .help = "The shared memory through which processes coordinate: a name under /dev/shm or an"
		  " absolute path. Processes that share a NIC must agree on it." },
	{ .name = "RNICE_LOG", .dflt = "warn", FIELD(log),
	  .help = "How much rnice tells on standard error." },
};
/* clang-format on */

_Static_assert(ARRAY_SIZE(rnice_settings) == RNICE_SETTING_COUNT, "count the rows again");
_Static_assert(ARRAY_SIZE(class_words) == RNICE_CLASS_AUTO + 2, "a word for each class");
_Static_assert(ARRAY_SIZE(policy_words) == RNICE_POLICY_STATIC + 2, "a word for each policy");
_Static_assert(ARRAY_SIZE(progress_words) == RNICE_PROGRESS_SPIN + 2, "a word for each mode");
_Static_assert(ARRAY_SIZE(direct_words) == RNICE_DIRECT_DENY + 2, "a word for each");
_Static_assert(ARRAY_SIZE(uar_words) == RNICE_UAR_AUTO + 2, "a word for each mode");
_Static_assert(ARRAY_SIZE(log_words) == RNICE_LOG_DEBUG + 2, "a word for each level");

const char *rnice_class_word(unsigned value)
{
	return value <= RNICE_CLASS_AUTO ? class_words[value] : "?";
}

const char *rnice_policy_word(unsigned value)
{
	return value <= RNICE_POLICY_STATIC ? policy_words[value] : "?";
}

const char *rnice_uar_word(unsigned value)
{
	return value <= RNICE_UAR_AUTO ? uar_words[value] : "?";
}
