/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process with known traffic, for `rnice stat` to show: no NIC needed.
 *
 *	fill_segment SEGMENT	joins, counts, prints "ready", leaves when standard input ends
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/port.h"
#include "scheduler/register.h"

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void fill_registers(struct rnice_port *port)
{
	struct rnice_register_stat own = {
		.offset = 0x800, .qps = 1, .threads = 1, .reserved = true};
	struct rnice_register_stat shared = {.page = 1, .offset = 0xa00, .qps = 5, .threads = 2};

	rnice_doorbells_reserve(port, 4, 100);
	for (int i = 0; i < 3; i++)
		rnice_register_show(port, rnice_register_claim(port), &own);
	rnice_register_show(port, rnice_register_claim(port), &shared);
}

/* The figures that tests/command/run expects. */
static void fill(struct rnice_port *port)
{
	rnice_port_count(port, RNICE_CTR_QPS, 3);
	rnice_port_count(port, RNICE_CTR_MANAGED_QPS, 2);
	rnice_port_count(port, RNICE_CTR_WRS, 5);
	rnice_port_count(port, RNICE_CTR_BYTES, 5 << 20);
	rnice_port_count(port, RNICE_CTR_CHUNKS, 80);
	rnice_port_count(port, RNICE_CTR_CUT_WRS, 4);
	rnice_port_count(port, RNICE_CTR_QUEUED_BYTES, 65536);
	rnice_port_count(port, RNICE_CTR_UNCONTROLLED + RNICE_UNC_DIRECT, 7);
	fill_registers(port);
	for (int i = 0; i < 990; i++)
		rnice_port_latency(port, 2000);
	for (int i = 0; i < 10; i++)
		rnice_port_latency(port, 1000000);
}

static int run(struct rnice_proc *proc)
{
	struct rnice_port *port;
	uint64_t *line;
	char c;

	if (rnice_port_attach(proc, "rxe\"0", &port))
		return 1;
	fill(port);
	line = rnice_port_activity_line(port);
	__atomic_store_n(line, *line + 42, __ATOMIC_RELAXED);
	rnice_port_take(port, 4096, now());

	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	rnice_port_done(port, 4096, true, now());
	rnice_port_activity_release(port, line);
	rnice_port_detach(port);
	return 0;
}

int main(int argc, char *argv[])
{
	struct rnice_proc_info info = {.cls = RNICE_CLASS_BULK,
				       .policy = RNICE_POLICY_STATIC,
				       .uar = RNICE_UAR_BALANCED,
				       .chunk = 65536,
				       .window = 262144};
	struct rnice_segment *seg;
	struct rnice_proc *proc;
	char why[128] = "";
	int status;

	if (argc != 2 || rnice_segment_open(argv[1], true, &seg, why, sizeof(why))) {
		fprintf(stderr, "fill_segment: cannot open a segment: %s\n", why);
		return 1;
	}
	if (rnice_proc_join(seg, &info, &proc)) {
		fprintf(stderr, "fill_segment: cannot join\n");
		return 1;
	}
	status = run(proc);
	rnice_proc_leave(proc);
	rnice_segment_close(seg);
	return status;
}
