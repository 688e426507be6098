/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared memory through which every rnice process on a host coordinates.
 *
 * Lifetime: open once per process, join (claim a slot), leave. The segment outlives its openers,
 * so a crash takes nobody along. A forked child must not use its parent's slot: it joins anew. An
 * exec gives nothing back either: the next join of that process, or its end, does.
 *
 * Trust: whatever is read from the segment may be garbage; it may cost performance, never memory
 * safety. Every index is checked, every count clamped.
 *
 * The dead: a process killed at any instruction leaves a slot, which is taken back by whoever joins
 * or, if there are bytes in it, by whoever needs them. Across pid namespaces nobody can tell the
 * dead: there a slot is taken back if room is short and it was silent for 10 minutes. A process
 * whose slot was taken like that, or overwritten, goes on by itself: own window, no coordination.
 *
 * Cost: about 6.2 MiB of /dev/shm, allocated at once. Somebody with write permission who truncates
 * the file kills all that have it mapped (SIGBUS): its mode is the defence.
 *
 *	call                   may run beside
 *	open, close            all but calls on what is closed
 *	join                   all; for two joins of one process both get a slot
 *	leave                  all but calls on that proc and its ports
 *	device, proc (reading) all
 */
#ifndef RNICE_SEGMENT_H
#define RNICE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RNICE_MAX_PROCS 256
#define RNICE_MAX_DEVICES 16
#define RNICE_DEVICE_NAME 64
#define RNICE_MAX_REGISTERS 64	  /* doorbell registers that a process can show */
#define RNICE_LATENCY_BUCKETS 128 /* telemetry/histogram.h */

struct rnice_segment; /* layout: scheduler/layout.h, guarded by its version */

/* What made an object uncontrollable; reported by `rnice stat`. */
enum rnice_uncontrolled {
	RNICE_UNC_QP_TYPE, /* raw packet, driver QPs */
	RNICE_UNC_WR_API,  /* QP made for ibv_wr_* that cannot be recorded */
	RNICE_UNC_CQ_EX,   /* its CQ: only the program can read it, or no room for hidden entries */
	RNICE_UNC_DIRECT,  /* mlx5dv_*, efadv_*, DevX */
	RNICE_UNC_SHARED_QP, /* ibv_open_qp */
	RNICE_UNC_KINDS
};

/* Per process and device; one writer (the owner), read by anybody. All monotonic unless "now". */
enum rnice_counter {
	RNICE_CTR_QPS,		  /* now: QPs alive */
	RNICE_CTR_MANAGED_QPS,	  /* now: of these, managed */
	RNICE_CTR_WRS,		  /* send WRs taken from the program on managed QPs */
	RNICE_CTR_BYTES,	  /* bytes completed on managed QPs */
	RNICE_CTR_CHUNKS,	  /* WRs given to the NIC for them */
	RNICE_CTR_CUT_WRS,	  /* program WRs that became more than one chunk */
	RNICE_CTR_QUEUED_BYTES,	  /* now: accepted, not yet in the NIC */
	RNICE_CTR_INFLIGHT_BYTES, /* now: in the NIC */
	RNICE_CTR_UNCONTROLLED,	  /* RNICE_UNC_KINDS counters start here */
	RNICE_CTR_COUNT = RNICE_CTR_UNCONTROLLED + RNICE_UNC_KINDS
};

/*
 * 0, or an errno: ENOENT (not there and @create false), EACCES, EPROTO (another layout or not an
 * rnice segment), ENOSPC, ... @why gets the path and a short phrase for the message, e.g.
 * "/dev/shm/rnice-0 belongs to uid 7". Sets *@out on 0 only.
 *
 * @name: config's segment value ("" = /dev/shm/rnice-<uid>, which must belong to that user or to
 * root). New segments get mode 0600; a mode chosen later stays. A file that is no segment of this
 * version is never modified. With @create false and no permission to write, it is opened for
 * looking only: join then fails with EACCES.
 */
int rnice_segment_open(const char *name, bool create, struct rnice_segment **out, char *why,
		       size_t why_len);
void rnice_segment_close(struct rnice_segment *seg); /* accepts NULL */

struct rnice_proc_info {
	uint8_t cls;				  /* enum rnice_class */
	uint8_t policy;				  /* enum rnice_policy */
	uint8_t uar;				  /* enum rnice_uar_mode */
	uint64_t preempt_ns, chunk, window, rate; /* as in struct rnice_config */
};

struct rnice_proc; /* this process's slot and its view of the devices */

/* Claim a slot, reclaiming those of dead owners. ENOSPC when all belong to the living. */
int rnice_proc_join(struct rnice_segment *seg, const struct rnice_proc_info *info,
		    struct rnice_proc **out);
void rnice_proc_leave(struct rnice_proc *proc); /* accepts NULL; gives the slot back */

/* ---- reading, for `rnice stat`: any process, no slot needed ---- */
struct rnice_device_stat {
	char name[RNICE_DEVICE_NAME];
	uint64_t rate;	     /* bytes/s, measured; 0 = unknown */
	uint64_t window;     /* bytes, now in force */
	uint64_t chunk;	     /* bytes, now in force */
	bool latency_active; /* as the last tick saw it; bulk processes run ticks when they send */
	uint32_t doorbells;  /* registers that the processes have reserved on it */
};
/* A doorbell register as its process sees it. */
struct rnice_register_stat {
	unsigned device;
	uint32_t page;	  /* counted from 0 in the order in which the process met them */
	uint32_t offset;  /* in that page */
	uint32_t qps;	  /* QPs alive that ring it */
	uint32_t threads; /* threads seen to post to these */
	bool reserved;	  /* of a thread domain that rnice made; else the driver's */
};
struct rnice_proc_stat {
	uint32_t pid;
	char comm[16];
	uint8_t cls, policy, uar;
	struct {
		bool used;
		uint64_t counter[RNICE_CTR_COUNT];
		uint64_t latency_posts;
		uint64_t latency[RNICE_LATENCY_BUCKETS]; /* telemetry/histogram.h buckets, ns */
	} dev[RNICE_MAX_DEVICES];
};
/* False when the slot or device is free. Consistent enough for a person, not atomic. */
bool rnice_segment_device(const struct rnice_segment *seg, unsigned dev,
			  struct rnice_device_stat *out);
bool rnice_segment_proc(const struct rnice_segment *seg, unsigned slot,
			struct rnice_proc_stat *out);
/* What a process shows of its registers, at most RNICE_MAX_REGISTERS; how many. */
unsigned rnice_segment_registers(const struct rnice_segment *seg, unsigned slot,
				 struct rnice_register_stat *out);

#endif
