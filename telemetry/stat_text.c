/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice stat for people: tables whose numbers are rounded. */
#include <inttypes.h>
#include <stdio.h>

#include "config/setting.h"
#include "config/units.h"
#include "telemetry/histogram.h"
#include "telemetry/stat.h"

#define NUMBER 32 /* bytes that hold any formatted number */
#define DEVICE_WIDTH 16
#define COMM_WIDTH 16

/* 117.7m: binary units, one decimal. */
static const char *human_bytes(uint64_t bytes, char out[NUMBER])
{
	static const char suffixes[] = "\0kmgtpe";
	double value = (double)bytes;
	unsigned i = 0;

	for (; value >= 1024; i++)
		value /= 1024;
	snprintf(out, NUMBER, "%.*f%.1s", i ? 1 : 0, value, suffixes + i);
	return out;
}

/* 9.877gbit: four digits of it. */
static const char *human_rate(uint64_t rate, char out[NUMBER])
{
	uint64_t unit = 1;

	if (!rate)
		return "unknown";
	while (rate / unit >= 100000)
		unit *= 10;
	rnice_format_rate((rate + unit / 2) / unit * unit, out, NUMBER);
	return out;
}

/* In a column of @width. Text from the segment may hold anything, terminal control among it. */
static void print_name(const char *text, int size, int width)
{
	int i;

	for (i = 0; i < size && text[i]; i++)
		putchar(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
	printf("%*s", i < width ? width - i : 0, "");
}

static void print_devices(const struct rnice_segment *seg)
{
	char rate[NUMBER], window[NUMBER], chunk[NUMBER];
	struct rnice_device_stat dev;

	printf("\n%-*s %12s %9s %9s %10s  %s\n", DEVICE_WIDTH, "DEVICE", "RATE", "WINDOW", "CHUNK",
	       "DOORBELLS", "LATENCY TRAFFIC");
	for (unsigned i = 0; i < RNICE_MAX_DEVICES; i++) {
		if (!rnice_segment_device(seg, i, &dev))
			continue;
		print_name(dev.name, sizeof(dev.name), DEVICE_WIDTH);
		printf(" %12s %9s %9s %10" PRIu32 "  %s\n", human_rate(dev.rate, rate),
		       human_bytes(dev.window, window), human_bytes(dev.chunk, chunk),
		       dev.doorbells, dev.latency_active ? "active" : "idle");
	}
}

static void print_processes(const struct rnice_segment *seg)
{
	struct rnice_proc_stat proc;
	bool any = false;

	printf("\n%10s %-*s %-8s %-8s %s\n", "PID", COMM_WIDTH, "COMMAND", "CLASS", "POLICY",
	       "UAR");
	for (unsigned slot = 0; slot < RNICE_MAX_PROCS; slot++) {
		if (!rnice_segment_proc(seg, slot, &proc))
			continue;
		any = true;
		printf("%10" PRIu32 " ", proc.pid);
		print_name(proc.comm, sizeof(proc.comm), COMM_WIDTH);
		printf(" %-8s %-8s %s\n", rnice_class_word(proc.cls),
		       rnice_policy_word(proc.policy), rnice_uar_word(proc.uar));
	}
	if (!any)
		printf("%10s no process runs now\n", "-");
}

/* A table about processes on their devices, behind the columns for these two. */
struct table {
	const char *header;
	bool (*has_row)(const struct rnice_proc_stat *proc, unsigned dev);
	void (*print_row)(const struct rnice_proc_stat *proc, unsigned dev);
};

static bool has_counters(const struct rnice_proc_stat *proc, unsigned dev)
{
	return proc->dev[dev].used;
}

static void print_counters(const struct rnice_proc_stat *proc, unsigned dev)
{
	const uint64_t *c = proc->dev[dev].counter;
	char bytes[NUMBER], queued[NUMBER], inflight[NUMBER];

	printf("%6" PRIu64 " %8" PRIu64 " %9s %11" PRIu64 " %11" PRIu64 " %11" PRIu64 " %9s %9s\n",
	       stat_gauge(c, RNICE_CTR_QPS), stat_gauge(c, RNICE_CTR_MANAGED_QPS),
	       human_bytes(c[RNICE_CTR_BYTES], bytes), c[RNICE_CTR_WRS], c[RNICE_CTR_CUT_WRS],
	       c[RNICE_CTR_CHUNKS], human_bytes(stat_gauge(c, RNICE_CTR_QUEUED_BYTES), queued),
	       human_bytes(stat_gauge(c, RNICE_CTR_INFLIGHT_BYTES), inflight));
}

static bool has_latency(const struct rnice_proc_stat *proc, unsigned dev)
{
	return proc->dev[dev].used &&
	       (proc->dev[dev].latency_posts || rnice_histogram_count(proc->dev[dev].latency));
}

static double microseconds(const uint64_t *buckets, uint32_t ppm)
{
	return (double)rnice_histogram_percentile(buckets, ppm) / 1000;
}

static void print_latency(const struct rnice_proc_stat *proc, unsigned dev)
{
	const uint64_t *buckets = proc->dev[dev].latency;

	printf("%12" PRIu64 " %12" PRIu64 " %10.1f %10.1f %10.1f\n", proc->dev[dev].latency_posts,
	       rnice_histogram_count(buckets), microseconds(buckets, 500000),
	       microseconds(buckets, 990000), microseconds(buckets, 999000));
}

static bool has_uncontrolled(const struct rnice_proc_stat *proc, unsigned dev)
{
	uint64_t any = 0;

	for (unsigned kind = 0; kind < RNICE_UNC_KINDS; kind++)
		any |= proc->dev[dev].counter[RNICE_CTR_UNCONTROLLED + kind];
	return proc->dev[dev].used && any;
}

static void print_uncontrolled(const struct rnice_proc_stat *proc, unsigned dev)
{
	for (unsigned kind = 0; kind < RNICE_UNC_KINDS; kind++)
		if (proc->dev[dev].counter[RNICE_CTR_UNCONTROLLED + kind])
			printf("  %s %" PRIu64, stat_uncontrolled_word(kind),
			       proc->dev[dev].counter[RNICE_CTR_UNCONTROLLED + kind]);
	putchar('\n');
}

static const struct table tables[] = {
	{"   QPS  MANAGED     BYTES         WRS     CUT WRS      CHUNKS    QUEUED IN FLIGHT",
	 has_counters, print_counters},
	{"       POSTS      SAMPLES     p50 us     p99 us   p99.9 us", has_latency, print_latency},
	{"  UNCONTROLLED", has_uncontrolled, print_uncontrolled},
};

static void print_table_of_process(const struct rnice_segment *seg, const struct table *t,
				   const struct rnice_proc_stat *proc, bool *any)
{
	struct rnice_device_stat dev;

	for (unsigned i = 0; i < RNICE_MAX_DEVICES; i++) {
		if (!t->has_row(proc, i) || !rnice_segment_device(seg, i, &dev))
			continue;
		if (!*any)
			printf("\n%10s %-*s %s\n", "PID", DEVICE_WIDTH, "DEVICE", t->header);
		*any = true;
		printf("%10" PRIu32 " ", proc->pid);
		print_name(dev.name, sizeof(dev.name), DEVICE_WIDTH);
		putchar(' ');
		t->print_row(proc, i);
	}
}

static void print_table(const struct rnice_segment *seg, const struct table *t)
{
	struct rnice_proc_stat proc;
	bool any = false;

	for (unsigned slot = 0; slot < RNICE_MAX_PROCS; slot++)
		if (rnice_segment_proc(seg, slot, &proc))
			print_table_of_process(seg, t, &proc, &any);
}

/* ---- doorbell registers: a row for all of a process that are alike ---- */

static bool alike(const struct rnice_register_stat *a, const struct rnice_register_stat *b)
{
	return a->device == b->device && a->qps == b->qps && a->threads == b->threads &&
	       a->reserved == b->reserved;
}

static void print_register_row(const struct rnice_segment *seg, uint32_t pid,
			       const struct rnice_register_stat *r, unsigned many, bool *any)
{
	struct rnice_device_stat dev;

	if (!rnice_segment_device(seg, r->device, &dev))
		return;
	if (!*any)
		printf("\n%10s %-*s %9s %8s %8s %s\n", "PID", DEVICE_WIDTH, "DEVICE", "REGISTERS",
		       "QPS EACH", "THREADS", "CHOSEN BY");
	*any = true;
	printf("%10" PRIu32 " ", pid);
	print_name(dev.name, sizeof(dev.name), DEVICE_WIDTH);
	printf(" %9u %8" PRIu32 " %8" PRIu32 " %s%s\n", many, r->qps, r->threads,
	       r->reserved ? "rnice" : "driver", stat_is_shared(r) ? ", shared" : "");
}

static void print_registers_of(const struct rnice_segment *seg, unsigned slot, uint32_t pid,
			       bool *any)
{
	struct rnice_register_stat r[RNICE_MAX_REGISTERS];
	unsigned n = rnice_segment_registers(seg, slot, r), first, many;

	for (unsigned i = 0; i < n; i++) {
		for (first = 0; !alike(&r[first], &r[i]); first++)
			;
		if (first < i)
			continue;
		many = 0;
		for (unsigned k = i; k < n; k++)
			many += alike(&r[k], &r[i]);
		print_register_row(seg, pid, &r[i], many, any);
	}
}

static void print_registers(const struct rnice_segment *seg)
{
	struct rnice_proc_stat proc;
	bool any = false;

	for (unsigned slot = 0; slot < RNICE_MAX_PROCS; slot++)
		if (rnice_segment_proc(seg, slot, &proc))
			print_registers_of(seg, slot, proc.pid, &any);
}

void stat_print_text(const struct rnice_segment *seg, const char *name)
{
	printf("segment %s\n", name);
	print_devices(seg);
	print_processes(seg);
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		print_table(seg, &tables[i]);
	print_registers(seg);
}
