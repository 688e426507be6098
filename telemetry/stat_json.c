/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice stat --json. Members may be added; one that goes or changes meaning raises "version". */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/setting.h"
#include "telemetry/histogram.h"
#include "telemetry/json.h"
#include "telemetry/stat.h"

static void member(const char *name, uint64_t value)
{
	printf("\"%s\": %" PRIu64 ", ", name, value);
}

static void string_member(const char *name, const char *text, size_t size)
{
	printf("\"%s\": ", name);
	json_string(text, size);
	printf(", ");
}

static void print_device(const struct rnice_device_stat *dev)
{
	printf("{");
	string_member("name", dev->name, sizeof(dev->name));
	member("rate_bytes_per_second", dev->rate);
	member("window_bytes", dev->window);
	member("chunk_bytes", dev->chunk);
	member("reserved_doorbells", dev->doorbells);
	printf("\"latency_active\": %s}", dev->latency_active ? "true" : "false");
}

static void print_devices(const struct rnice_segment *seg)
{
	struct rnice_device_stat dev;
	const char *separator = "";

	for (unsigned i = 0; i < RNICE_MAX_DEVICES; i++) {
		if (!rnice_segment_device(seg, i, &dev))
			continue;
		printf("%s\n  ", separator);
		print_device(&dev);
		separator = ",";
	}
}

static void print_counters(const uint64_t *counters)
{
	member("qps", stat_gauge(counters, RNICE_CTR_QPS));
	member("managed_qps", stat_gauge(counters, RNICE_CTR_MANAGED_QPS));
	member("wrs", counters[RNICE_CTR_WRS]);
	member("bytes", counters[RNICE_CTR_BYTES]);
	member("chunks", counters[RNICE_CTR_CHUNKS]);
	member("cut_wrs", counters[RNICE_CTR_CUT_WRS]);
	member("queued_bytes", stat_gauge(counters, RNICE_CTR_QUEUED_BYTES));
	member("inflight_bytes", stat_gauge(counters, RNICE_CTR_INFLIGHT_BYTES));
	printf("\n    \"uncontrolled\": {");
	for (unsigned kind = 0; kind < RNICE_UNC_KINDS; kind++)
		printf("%s\"%s\": %" PRIu64, kind ? ", " : "", stat_uncontrolled_word(kind),
		       counters[RNICE_CTR_UNCONTROLLED + kind]);
	printf("},\n    ");
}

static void print_latency(const uint64_t *buckets)
{
	printf("\"latency_ns\": {");
	member("samples", rnice_histogram_count(buckets));
	member("p50", rnice_histogram_percentile(buckets, 500000));
	member("p99", rnice_histogram_percentile(buckets, 990000));
	printf("\"p99_9\": %" PRIu64 "}", rnice_histogram_percentile(buckets, 999000));
}

static void print_registers(const struct rnice_segment *seg, unsigned slot, unsigned device)
{
	struct rnice_register_stat r[RNICE_MAX_REGISTERS];
	unsigned n = rnice_segment_registers(seg, slot, r), shared = 0;
	const char *separator = "";

	printf("\"registers\": [");
	for (unsigned i = 0; i < n; i++) {
		if (r[i].device != device)
			continue;
		printf("%s\n     {", separator);
		member("page", r[i].page);
		member("offset", r[i].offset);
		member("qps", r[i].qps);
		member("threads", r[i].threads);
		printf("\"reserved\": %s}", r[i].reserved ? "true" : "false");
		shared += stat_is_shared(&r[i]);
		separator = ",";
	}
	printf("], \"shared_registers\": %u, ", shared);
}

static void print_process(const struct rnice_segment *seg, unsigned slot,
			  const struct rnice_proc_stat *proc)
{
	struct rnice_device_stat dev;
	const char *separator = "";

	printf("{");
	member("pid", proc->pid);
	string_member("command", proc->comm, sizeof(proc->comm));
	string_member("class", rnice_class_word(proc->cls), SIZE_MAX);
	string_member("policy", rnice_policy_word(proc->policy), SIZE_MAX);
	string_member("uar", rnice_uar_word(proc->uar), SIZE_MAX);
	printf("\"devices\": [");
	for (unsigned i = 0; i < RNICE_MAX_DEVICES; i++) {
		if (!proc->dev[i].used || !rnice_segment_device(seg, i, &dev))
			continue;
		printf("%s\n   {", separator);
		string_member("name", dev.name, sizeof(dev.name));
		print_counters(proc->dev[i].counter);
		print_registers(seg, slot, i);
		member("latency_posts", proc->dev[i].latency_posts);
		print_latency(proc->dev[i].latency);
		printf("}");
		separator = ",";
	}
	printf("]}");
}

void stat_print_json(const struct rnice_segment *seg, const char *name)
{
	struct rnice_proc_stat proc;
	const char *separator = "";

	printf("{\"version\": 1, ");
	string_member("segment", name, SIZE_MAX);
	printf("\"devices\": [");
	print_devices(seg);
	printf("],\n \"processes\": [");
	for (unsigned slot = 0; slot < RNICE_MAX_PROCS; slot++) {
		if (!rnice_segment_proc(seg, slot, &proc))
			continue;
		printf("%s\n  ", separator);
		print_process(seg, slot, &proc);
		separator = ",";
	}
	printf("]}\n");
}

_Static_assert(RNICE_HISTOGRAM_BUCKETS == RNICE_LATENCY_BUCKETS, "one shape of histogram");
