/* SPDX-License-Identifier: BSD-2-Clause */
/* The segment, and what its processes show of themselves. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/setting.h"
#include "telemetry/doctor.h"
#include "telemetry/stat.h"

/* Why queue pairs are uncontrolled. */
static const char *const reasons[] = {
	[RNICE_UNC_QP_TYPE] = "of types that rnice does not schedule (raw packet, vendors' own)",
	[RNICE_UNC_WR_API] = "were made for operations of ibv_wr_* that rnice cannot record",
	[RNICE_UNC_CQ_EX] =
		"complete on CQs that rnice cannot read, or without room for its entries",
	[RNICE_UNC_DIRECT] =
		"were made by a vendor's interface, or handed out by one (RNICE_DIRECT)",
	[RNICE_UNC_SHARED_QP] = "were opened with ibv_open_qp",
};
_Static_assert(sizeof(reasons) / sizeof(reasons[0]) == RNICE_UNC_KINDS, "a reason for each kind");

struct process {
	const struct rnice_segment *seg;
	unsigned slot;
	struct rnice_proc_stat stat;
	unsigned findings;
};

static const char *device_name(const struct process *p, unsigned device,
			       struct rnice_device_stat *out)
{
	return rnice_segment_device(p->seg, device, out) ? out->name : "?";
}

static void check_uncontrolled(struct process *p, unsigned device)
{
	const uint64_t *counter = p->stat.dev[device].counter + RNICE_CTR_UNCONTROLLED;
	struct rnice_device_stat dev;

	for (unsigned kind = 0; kind < RNICE_UNC_KINDS; kind++) {
		if (!counter[kind] || counter[kind] > INT64_MAX)
			continue;
		p->findings++;
		doctor_problem("process %" PRIu32 " (%s) on %s: %" PRIu64
			       " queue pairs %s. They are not scheduled",
			       p->stat.pid, p->stat.comm, device_name(p, device, &dev),
			       counter[kind], reasons[kind]);
	}
}

static void tell_shared(struct process *p, unsigned device, unsigned shared, unsigned all)
{
	bool driver = p->stat.uar == RNICE_UAR_DRIVER || p->stat.uar == RNICE_UAR_AUTO;
	struct rnice_device_stat dev;

	p->findings++;
	doctor_problem(
		"process %" PRIu32 " (%s) on %s: %u of %u doorbell registers are rung by more"
		" than one thread, which then wait for each other. %s",
		p->stat.pid, p->stat.comm, device_name(p, device, &dev), shared, all,
		driver ? "Threads with queue pairs of their own are kept apart with"
			 " RNICE_UAR=balanced"
		: p->stat.uar == RNICE_UAR_SHARED ? "RNICE_UAR=shared makes it so"
		: p->stat.uar == RNICE_UAR_PER_QP
			? "They share queue pairs, or RNICE_UAR_BUDGET is too small"
			: "Either they share queue pairs, or RNICE_UAR_BUDGET is too small, or"
			  " one thread makes the queue pairs of others: try RNICE_UAR=per-qp");
}

static void check_registers(struct process *p, unsigned device)
{
	struct rnice_register_stat r[RNICE_MAX_REGISTERS];
	unsigned n = rnice_segment_registers(p->seg, p->slot, r), all = 0, shared = 0;

	for (unsigned i = 0; i < n; i++) {
		all += r[i].device == device;
		shared += r[i].device == device && stat_is_shared(&r[i]);
	}
	if (shared)
		tell_shared(p, device, shared, all);
}

static void check_process(struct process *p)
{
	for (unsigned d = 0; d < RNICE_MAX_DEVICES; d++) {
		if (!p->stat.dev[d].used)
			continue;
		check_uncontrolled(p, d);
		check_registers(p, d);
	}
	if (!p->findings)
		doctor_fine("process %" PRIu32 " (%s): class %s, policy %s", p->stat.pid,
			    p->stat.comm, rnice_class_word(p->stat.cls),
			    rnice_policy_word(p->stat.policy));
}

static void check_processes(const struct rnice_segment *seg)
{
	unsigned n = 0;

	for (unsigned slot = 0; slot < RNICE_MAX_PROCS; slot++) {
		struct process p = {.seg = seg, .slot = slot};

		if (!rnice_segment_proc(seg, slot, &p.stat))
			continue;
		n++;
		check_process(&p);
	}
	if (n == RNICE_MAX_PROCS)
		doctor_problem(
			"all %u places for processes are taken: further ones run unscheduled", n);
}

void doctor_segment(const struct rnice_config *cfg)
{
	char name[RNICE_SETTING_TEXT], why[160] = "";
	struct rnice_segment *seg;
	int err = rnice_segment_open(cfg->segment, false, &seg, why, sizeof(why));

	rnice_setting_format(rnice_setting_find("RNICE_SEGMENT"), cfg, name, sizeof(name));
	if (err == ENOENT) {
		doctor_fine("segment %s: not there; the first program makes it", name);
		return;
	}
	if (err) {
		doctor_problem("segment: %s. Programs run unscheduled", *why ? why : strerror(err));
		return;
	}
	doctor_fine("segment %s", name);
	check_processes(seg);
	rnice_segment_close(seg);
}
