/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The segment is full of garbage, again and again, while a process is attached and calls
 * everything. It may lose performance; it must not crash (run this under ASan and UBSan), hang,
 * or starve.
 */
#include "test_segment.h"

#define T0 (100 * SEC)

struct victim {
	struct rnice_segment *seg;
	struct rnice_proc *proc;
	struct rnice_port *port[2];
	uint64_t *line[80];
	uint64_t now, rnd, held[2];
};

static struct victim new_victim(struct rnice_proc_info info)
{
	struct victim v = {.seg = fresh_segment(), .now = T0, .rnd = 2463534242};

	info.cls = RNICE_CLASS_AUTO;
	v.proc = join_as(v.seg, info);
	cr_assert_eq(rnice_port_attach(v.proc, "a", &v.port[0]), 0);
	cr_assert_eq(rnice_port_attach(v.proc, "b", &v.port[1]), 0);
	for (int i = 0; i < 80; i++)
		v.line[i] = rnice_port_activity_line(v.port[i % 2]);
	return v;
}

/* Everything but the header. Words of few bits are likelier to be taken for something. */
static void fill(struct victim *v, bool keep_slot)
{
	uint64_t *word = (uint64_t *)v->seg->shm->device;
	size_t n = (sizeof(struct shm) - sizeof(struct shm_header)) / sizeof(*word);
	uint64_t mode = draw(&v->rnd, 4);

	for (size_t i = 0; i < n; i++) {
		uint64_t r = draw(&v->rnd, UINT64_MAX);

		store_relaxed(&word[i], mode == 0   ? r
					: mode == 1 ? UINT64_MAX
					: mode == 2 ? r >> (r % 64)
						    : 0);
	}
	if (keep_slot) {
		store_relaxed(&v->proc->slot->owner, v->proc->me.word);
		store_relaxed(&v->proc->slot->ready, v->proc->me.word);
	}
}

static void call_port(struct victim *v, unsigned i)
{
	uint64_t bytes = rnice_port_chunk(v->port[i]);
	struct rnice_port *port = v->port[i];

	cr_assert_geq(bytes, 1);
	cr_assert_leq(bytes, RNICE_CHUNK_MAX);
	rnice_port_backlog(port, v->rnd % 3 != 0, v->now);
	if (rnice_port_take(port, bytes, v->now))
		v->held[i] += bytes;
	if (v->held[i] >= bytes && v->rnd % 2) {
		rnice_port_done(port, bytes, v->rnd % 5 != 0, v->now);
		v->held[i] -= bytes;
	}
	cr_assert_leq(rnice_port_retry_ns(port, v->now), SEC);
	rnice_port_count(port, (enum rnice_counter)draw(&v->rnd, 20), 1);
	rnice_port_latency(port, v->rnd);
	rnice_port_set_mtu(port, 4096);
	bump_relaxed(v->line[v->rnd % 80]);
}

static void call_everything(struct victim *v)
{
	static struct rnice_proc_stat st;
	struct rnice_device_stat dev;
	struct rnice_port *again;

	for (unsigned i = 0; i < 2; i++)
		call_port(v, i);
	for (unsigned i = 0; i <= RNICE_MAX_DEVICES; i++)
		if (rnice_segment_device(v->seg, i, &dev))
			cr_assert_lt(strlen(dev.name), sizeof(dev.name));
	for (unsigned i = 0; i <= RNICE_MAX_PROCS; i += 1 + (unsigned)draw(&v->rnd, 64))
		if (rnice_segment_proc(v->seg, i, &st))
			cr_assert_lt(strlen(st.comm), sizeof(st.comm));
	if (!rnice_port_attach(v->proc, "c", &again))
		rnice_port_detach(again);
	v->line[5] = (rnice_port_activity_release(v->port[1], v->line[5]),
		      rnice_port_activity_line(v->port[1]));
	v->now += draw(&v->rnd, 3 * MSEC);
}

Test(garbage, all_over_the_segment_nothing_crashes_or_hangs, .timeout = 60)
{
	struct victim v = new_victim((struct rnice_proc_info){.policy = RNICE_POLICY_PREEMPT});

	for (int round = 0; round < 25; round++) {
		fill(&v, round % 2);
		for (int i = 0; i < 20; i++)
			call_everything(&v);
	}
	rnice_proc_leave(v.proc);
	rnice_segment_close(v.seg);
}

Test(garbage, with_given_sizes_and_a_rate_likewise, .timeout = 60)
{
	struct victim v = new_victim((struct rnice_proc_info){
		.policy = RNICE_POLICY_STATIC, .chunk = 10, .window = 100, .rate = 1000000});

	for (int round = 0; round < 10; round++) {
		fill(&v, round % 2);
		for (int i = 0; i < 20; i++)
			call_everything(&v);
	}
}

Test(garbage, a_new_process_joins_or_is_told_that_there_is_no_room, .timeout = 60)
{
	struct victim v = new_victim((struct rnice_proc_info){.policy = RNICE_POLICY_PREEMPT});
	struct rnice_proc_info info = {0};

	for (int round = 0; round < 10; round++) {
		struct rnice_proc *proc;
		int err;

		fill(&v, false);
		err = rnice_proc_join(v.seg, &info, &proc);
		cr_assert(err == 0 || err == ENOSPC);
		if (!err)
			rnice_proc_leave(proc);
	}
}

/* Made-up ns until 1000 chunks went through, one in the NIC at a time. */
static uint64_t time_for_1000(struct victim *v)
{
	uint64_t start = v->now;

	for (int done = 0; done < 1000 && v->now < start + 100 * SEC; v->now += 50 * USEC) {
		uint64_t bytes = rnice_port_chunk(v->port[0]);

		if (rnice_port_take(v->port[0], bytes, v->now)) {
			v->now += 10 * USEC;
			rnice_port_done(v->port[0], bytes, true, v->now);
			done++;
		}
	}
	return v->now - start;
}

Test(garbage, nobody_waits_for_ever_for_what_is_not_there, .timeout = 60)
{
	struct victim v = new_victim((struct rnice_proc_info){.policy = RNICE_POLICY_PREEMPT});
	uint64_t ns, worst = 0;

	for (int round = 0; round < 25; round++) {
		fill(&v, round % 5 != 4);
		rnice_port_backlog(v.port[0], true, v.now);
		ns = time_for_1000(&v);
		worst = ns > worst ? ns : worst;
	}
	cr_log_info("1000 chunks in %.3f s at worst", (double)worst / 1e9);
	cr_expect_leq(worst, 12 * SEC);
}

Test(garbage, the_own_record_is_mended)
{
	struct victim v = new_victim((struct rnice_proc_info){.policy = RNICE_POLICY_PREEMPT});
	struct shm_flow *flow = v.port[0]->flow;

	rnice_port_backlog(v.port[0], true, v.now);
	cr_assert(rnice_port_take(v.port[0], 4096, v.now));
	add_relaxed(&flow->taken, 123456789);
	for (int i = 0; i < 200; i++, v.now += MSEC)
		rnice_port_take(v.port[0], 1 << 30, v.now);
	cr_expect_eq(rnice_flow_inflight(flow), 4096);
}
