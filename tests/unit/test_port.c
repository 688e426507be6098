/* SPDX-License-Identifier: BSD-2-Clause */
/* Admission by one process, and between processes that a made-up clock drives. */
#include "test_segment.h"

#include <pthread.h>

#define T0 (100 * SEC) /* where made-up clocks start */

static const struct rnice_proc_info plain;

static struct rnice_proc_info sized(uint64_t chunk, uint64_t window)
{
	return (struct rnice_proc_info){.chunk = chunk, .window = window};
}

/* A latency program on the same device, and the line that it bumps. */
static uint64_t *latency_line(struct rnice_segment *seg)
{
	struct rnice_proc_info info = {.cls = RNICE_CLASS_LATENCY, .policy = RNICE_POLICY_PREEMPT};
	struct rnice_port *port;

	cr_assert_eq(rnice_port_attach(join_as(seg, info), "dev", &port), 0);
	return rnice_port_activity_line(port);
}

/* ---- sizes ---- */

Test(port, chunk_and_window_that_were_given_are_used_exactly)
{
	struct rnice_port *port = bulk_port(fresh_segment(), sized(1, 10));

	cr_expect_eq(rnice_port_chunk(port), 1);
	cr_expect(rnice_port_take(port, 10, T0));
	cr_expect_not(rnice_port_take(port, 1, T0));
	rnice_port_done(port, 1, true, T0);
	cr_expect(rnice_port_take(port, 1, T0));
}

Test(port, static_has_fixed_sizes_even_if_none_were_given)
{
	struct rnice_proc_info info = {.policy = RNICE_POLICY_STATIC};
	struct rnice_port *port = bulk_port(fresh_segment(), info);

	cr_expect_eq(rnice_port_chunk(port), 64 << 10);
	for (int i = 0; i < 4; i++)
		cr_expect(rnice_port_take(port, 64 << 10, T0));
	cr_expect_not(rnice_port_take(port, 1, T0));
}

Test(port, observe_admits_everything_and_counts_it)
{
	struct rnice_proc_info info = {.policy = RNICE_POLICY_OBSERVE, .window = 10};
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port = bulk_port(seg, info);
	struct rnice_proc_stat st;

	for (int i = 0; i < 10; i++)
		cr_expect(rnice_port_take(port, 1 << 30, T0));
	cr_assert(rnice_segment_proc(seg, 0, &st));
	cr_expect_eq(st.dev[0].counter[RNICE_CTR_INFLIGHT_BYTES], UINT64_C(10) << 30);
}

Test(port, a_chunk_is_never_cut_below_the_mtu)
{
	struct rnice_port *port = bulk_port(fresh_segment(), plain);

	cr_expect_eq(rnice_port_chunk(port), RNICE_MTU_DEFAULT);
	rnice_port_set_mtu(port, 1 << 16);
	cr_expect_eq(rnice_port_chunk(port), 1 << 16);
	rnice_port_set_mtu(port, 512);
	cr_expect_eq(rnice_port_chunk(port), 1 << 16);
}

/* ---- the window ---- */

/* Another process is just renewing the rules, the first ones: it said so, and is not done. */
Test(port, without_rules_no_thread_takes_anything)
{
	struct rnice_port *port = bulk_port(fresh_segment(), sized(0, 1000));

	store_relaxed(&port->dev->tick, T0);
	rnice_port_backlog(port, true, T0);
	for (int i = 0; i < 3; i++)
		cr_expect_not(rnice_port_take(port, 1, T0), "take %d", i);
	cr_expect(rnice_port_take(port, 1, T0 + MSEC), "whoever renews them takes too long");
}

Test(port, the_first_take_may_be_larger_than_the_window_the_second_not)
{
	struct rnice_port *port = bulk_port(fresh_segment(), sized(0, 1000));

	cr_expect(rnice_port_take(port, 1 << 20, T0));
	cr_expect_not(rnice_port_take(port, 1, T0));
	rnice_port_done(port, 1 << 20, true, T0);
	cr_expect(rnice_port_take(port, 1, T0));
}

Test(port, what_another_process_has_in_the_nic_counts)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000));

	cr_expect(rnice_port_take(a, 600, T0));
	cr_expect(rnice_port_take(b, 400, T0));
	cr_expect_not(rnice_port_take(a, 1, T0));
	cr_expect_not(rnice_port_take(b, 1, T0));
	rnice_port_done(a, 600, true, T0);
	cr_expect(rnice_port_take(b, 100, T0));
}

Test(port, a_process_without_bytes_passes_the_window_by_one_take_at_most)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000)),
			  *c = bulk_port(seg, sized(0, 1000));

	cr_expect(rnice_port_take(a, 999, T0));
	cr_expect(rnice_port_take(b, 5000, T0));
	cr_expect_not(rnice_port_take(c, 1, T0));
	cr_expect_not(rnice_port_take(a, 1, T0));
}

/* Who is alone skips most of what a take looks at, but not once another process is there. */
Test(port, who_was_alone_shares_from_the_first_take_beside_another)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b, *c;

	for (int i = 0; i < 4; i++)
		cr_expect(rnice_port_take(a, 200, T0));
	cr_expect(rnice_port_alone(a));
	b = bulk_port(seg, sized(0, 1000));
	cr_expect(rnice_port_take(b, 200, T0));
	cr_expect_not(rnice_port_alone(a));
	cr_expect_not(rnice_port_take(a, 1, T0));
	cr_expect_not(rnice_port_take(b, 1, T0));
	rnice_port_detach(b);
	cr_expect(rnice_port_alone(a));
	cr_assert_eq(rnice_port_attach(a->proc, "other", &c), 0);
	cr_expect(rnice_port_alone(a), "another device");
}

Test(port, who_is_held_by_a_rate_is_not_alone)
{
	struct rnice_proc_info info = {.rate = 1000000};

	cr_expect_not(rnice_port_alone(bulk_port(fresh_segment(), info)));
}

Test(port, devices_have_windows_of_their_own)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b;

	cr_assert_eq(rnice_port_attach(a->proc, "other", &b), 0);
	cr_expect(rnice_port_take(a, 1000, T0));
	cr_expect(rnice_port_take(b, 1000, T0));
	cr_expect_not(rnice_port_take(b, 1, T0));
}

Test(port, bytes_of_a_process_that_left_do_not_count)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000));

	cr_expect(rnice_port_take(a, 1000, T0));
	cr_expect_not(rnice_port_take(b, 1, T0));
	rnice_proc_leave(a->proc);
	cr_expect(rnice_port_take(b, 1000, T0));
}

Test(port, bytes_of_a_detached_port_do_not_count)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000));

	cr_expect(rnice_port_take(a, 1000, T0));
	rnice_port_detach(a);
	cr_expect(rnice_port_take(b, 1000, T0));
}

Test(port, bytes_that_do_not_move_stop_counting)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000));
	uint64_t stale;

	cr_expect(rnice_port_take(a, 1000, T0));
	cr_expect_not(rnice_port_take(b, 1, T0));
	stale = load_relaxed(&b->dev->rules.stale_ms) * MSEC;
	cr_expect_leq(stale, 10 * SEC);
	cr_expect_not(rnice_port_take(b, 1, T0 + stale - MSEC));
	cr_expect(rnice_port_take(b, 1, T0 + stale + MSEC));
}

Test(port, attaching_twice_gives_the_same_port_until_both_are_detached)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, plain), *b;

	cr_assert_eq(rnice_port_attach(a->proc, "dev", &b), 0);
	cr_expect_eq(a, b);
	rnice_port_detach(b);
	cr_expect(rnice_is_member(a->dev, a->proc->index));
	rnice_port_detach(a);
	cr_expect_not(rnice_is_member(a->dev, a->proc->index));
}

Test(port, the_seventeenth_device_gets_ENOSPC)
{
	struct rnice_proc *proc = join_as(fresh_segment(), plain);
	struct rnice_port *port;
	char name[32];

	for (int i = 0; i < RNICE_MAX_DEVICES; i++) {
		snprintf(name, sizeof(name), "mlx5_%d", i);
		cr_expect_eq(rnice_port_attach(proc, name, &port), 0);
	}
	cr_expect_eq(rnice_port_attach(proc, "one too many", &port), ENOSPC);
	cr_expect_eq(rnice_port_attach(proc, "mlx5_7", &port), 0);
	cr_expect_eq(port->index, 7);
}

static int attach_new(struct rnice_segment *seg, uint32_t *go, int round)
{
	struct rnice_proc *proc = join_as(seg, plain);
	struct rnice_port *port;
	char name[32];

	snprintf(name, sizeof(name), "dev%d", round);
	while (!load_acquire(go))
		cpu_relax();
	return rnice_port_attach(proc, name, &port) ? 255 : (int)port->index;
}

Test(port, processes_that_need_a_new_device_at_once_get_one_record, .timeout = 20)
{
	struct rnice_segment *seg = fresh_segment();
	uint32_t *go = shared_memory(4096);
	pid_t pid[4];

	for (int round = 0; round < RNICE_MAX_DEVICES; round++) {
		store_relaxed(go, 0);
		for (int i = 0; i < 4; i++)
			if ((pid[i] = fork()) == 0)
				_exit(attach_new(seg, go, round));
		store_release(go, 1);
		for (int i = 0; i < 4; i++)
			cr_expect_eq(wait_for(pid[i]), round);
	}
}

/* ---- latency programs ---- */

Test(port, bulk_that_starts_beside_an_active_latency_program_is_protected_from_its_first_chunk)
{
	struct rnice_segment *seg = fresh_segment();
	uint64_t *line = latency_line(seg);
	struct rnice_port *bulk;

	bump_relaxed(line);
	bulk = bulk_port(seg, plain);
	rnice_port_backlog(bulk, true, T0);
	cr_expect_eq(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
	for (int i = 0; i < 2; i++)
		cr_expect(rnice_port_take(bulk, RNICE_MTU_DEFAULT, T0));
	cr_expect_not(rnice_port_take(bulk, RNICE_MTU_DEFAULT, T0));
}

Test(port, a_chunk_cut_by_rules_no_longer_in_force_is_refused_once)
{
	struct rnice_segment *seg = fresh_segment();
	uint64_t *line = latency_line(seg);
	struct rnice_port *bulk = bulk_port(seg, plain);
	uint32_t open;

	rnice_port_backlog(bulk, true, T0);
	open = rnice_port_chunk(bulk);
	cr_expect_gt(open, RNICE_MTU_DEFAULT);
	bump_relaxed(line);
	cr_expect_not(rnice_port_take(bulk, open, T0 + 2 * MSEC));
	cr_expect_lt(rnice_port_chunk(bulk), open);
	/* It may be a message that cannot be cut. */
	cr_expect(rnice_port_take(bulk, open, T0 + 2 * MSEC + 50 * USEC));
}

Test(port, protection_ends_after_the_hold_time)
{
	struct rnice_segment *seg = fresh_segment();
	uint64_t *line = latency_line(seg), t;
	struct rnice_port *bulk = bulk_port(seg, plain);
	uint32_t chunk;

	bump_relaxed(line);
	for (t = T0; t < T0 + RNICE_HOLD_NS - MSEC; t += MSEC) {
		rnice_port_take(bulk, 1, t);
		chunk = rnice_port_chunk(bulk);
		cr_assert_eq(chunk, RNICE_MTU_DEFAULT);
	}
	for (; t < T0 + RNICE_HOLD_NS + 2 * MSEC; t += MSEC)
		rnice_port_take(bulk, 1, t);
	cr_expect_gt(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
}

Test(port, activity_on_another_device_protects_nothing_here)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *bulk = bulk_port(seg, plain), *other;
	uint64_t *line;

	cr_assert_eq(rnice_port_attach(bulk->proc, "other", &other), 0);
	line = rnice_port_activity_line(other);
	bump_relaxed(line);
	rnice_port_backlog(bulk, true, T0);
	cr_expect_gt(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
}

Test(port, every_one_of_hundreds_of_latency_qps_is_seen)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *bulk = bulk_port(seg, plain), *port;
	uint64_t *line[200], now = T0;

	port = bulk;
	for (int i = 0; i < 200; i++)
		cr_assert_not_null(line[i] = rnice_port_activity_line(port));
	for (int i = 0; i < 200; i += 33) {
		now += 20 * SEC;
		rnice_port_backlog(bulk, true, now);
		now += MSEC * 2;
		rnice_port_take(bulk, 1, now);
		cr_assert_gt(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
		bump_relaxed(line[i]);
		now += MSEC * 2;
		rnice_port_take(bulk, 1, now);
		cr_expect_eq(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT, "line %d", i);
	}
	for (int i = 0; i < 200; i++)
		rnice_port_activity_release(port, line[i]);
	cr_expect_eq(load_relaxed(&port->flow->lines), 0);
}

Test(port, giving_a_line_back_is_no_activity_and_keeps_the_count)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *bulk = bulk_port(seg, plain);
	struct rnice_proc_stat st;
	uint64_t *line = rnice_port_activity_line(bulk);

	store_relaxed(line, 1000);
	rnice_port_backlog(bulk, true, T0);
	rnice_port_take(bulk, 1, T0 + SEC);
	cr_assert_gt(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
	rnice_port_activity_release(bulk, line);
	rnice_port_take(bulk, 1, T0 + SEC + 2 * MSEC);
	cr_expect_gt(rnice_port_chunk(bulk), RNICE_MTU_DEFAULT);
	cr_assert(rnice_segment_proc(seg, 0, &st));
	cr_expect_eq(st.dev[0].latency_posts, 1000);
}

/* ---- waiting ---- */

Test(port, who_is_blocked_asks_again_within_a_chunks_time_or_a_millisecond)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *a = bulk_port(seg, sized(0, 1000)), *b = bulk_port(seg, sized(0, 1000));

	rnice_port_take(a, 1000, T0);
	cr_expect_not(rnice_port_take(b, 1, T0));
	cr_expect_geq(rnice_port_retry_ns(b, T0), 20 * USEC);
	cr_expect_leq(rnice_port_retry_ns(b, T0), MSEC);
}

Test(port, a_rate_limit_says_exactly_how_long_to_wait)
{
	struct rnice_proc_info info = {.rate = 1000000}; /* 1 byte per us */
	struct rnice_port *port = bulk_port(fresh_segment(), info);
	uint64_t now = T0, wait;

	cr_expect(rnice_port_take(port, 4096, now));
	cr_expect_not(rnice_port_take(port, 4096, now));
	wait = rnice_port_retry_ns(port, now);
	cr_expect_eq(wait, 4096 * USEC + 1);
	cr_expect_not(rnice_port_take(port, 4096, now + wait - 2));
	cr_expect(rnice_port_take(port, 4096, now + wait));
}

/* A WR that the provider refused is tried again, and must not pay twice. */
Test(port, what_was_not_sent_is_not_charged_to_the_rate)
{
	struct rnice_proc_info info = {.rate = 1000000};
	struct rnice_port *port = bulk_port(fresh_segment(), info);

	for (int i = 0; i < 3; i++) {
		cr_expect(rnice_port_take(port, 4096, T0), "take %d", i);
		rnice_port_done(port, 4096, false, T0);
	}
	cr_expect(rnice_port_take(port, 4096, T0));
	rnice_port_done(port, 4096, true, T0);
	cr_expect_not(rnice_port_take(port, 4096, T0));
}

/* ---- how long chunks stay ---- */

static struct rnice_port *paced_port(void)
{
	struct rnice_port *port = bulk_port(fresh_segment(), plain);

	store_relaxed(&port->dev->rules.chunk, 4096);
	store_relaxed(&port->dev->rules.paced, 1);
	store_relaxed(&port->dev->pace, 10000000); /* 410 us per chunk */
	store_relaxed(&port->dev->trip, 100 * USEC);
	return port;
}

/* One chunk posted at T0, found at T0 + @found us, looked for before at T0 + @looked us: its stay,
 * us, or -1: none was noted. */
static double stay_of(struct rnice_port *port, int64_t looked, int64_t found)
{
	uint64_t stayed = load_relaxed(&port->flow->stayed),
		 staying = load_relaxed(&port->flow->staying);

	rnice_port_stayed(port, 4096, T0, T0 + (uint64_t)looked * USEC,
			  T0 + (uint64_t)found * USEC);
	staying = load_relaxed(&port->flow->staying) - staying;
	if (!staying)
		return -1;
	cr_expect_eq(staying, 4096);
	return (double)(load_relaxed(&port->flow->stayed) - stayed) * 1.024 / 4096;
}

Test(stay, is_from_post_to_completion_if_somebody_looked_just_before)
{
	cr_expect_float_eq(stay_of(paced_port(), 198, 200), 200, 2);
}

Test(stay, is_not_known_if_nobody_looked_for_a_while)
{
	cr_expect_float_eq(stay_of(paced_port(), -10, 1000), -1, 0);
	cr_expect_float_eq(stay_of(paced_port(), 300, 1000), -1, 0);
}

Test(stay, of_a_program_that_always_looks_late_is_until_it_looks)
{
	struct rnice_port *port = paced_port();
	double last = -1;

	for (int i = 0; i < 20; i++)
		last = stay_of(port, -10, 1000);
	cr_expect_float_eq(last, 1000, 2);
	stay_of(port, 198, 200);
	cr_expect_float_eq(stay_of(port, -10, 1000), -1, 0);
}

Test(stay, of_one_chunk_counts_as_three_service_times_beyond_the_trip_at_most)
{
	struct rnice_port *port = paced_port();

	cr_expect_float_eq(stay_of(port, 99999, 100000), 100 + 3 * 409.6, 3);
	store_relaxed(&port->dev->trip, 5000 * USEC);
	cr_expect_float_eq(stay_of(port, 5199, 5200), 5200, 3);
}

/* Otherwise no queue of small messages would ever be seen. */
Test(stay, of_a_small_message_counts_as_far_as_that_of_a_chunk)
{
	struct rnice_port *port = paced_port();

	rnice_port_stayed(port, 512, T0, T0 + 999 * USEC, T0 + 1000 * USEC);
	cr_expect_eq(load_relaxed(&port->flow->staying), 512);
	cr_expect_eq(load_relaxed(&port->flow->pieces), 1);
	cr_expect_float_eq((double)load_relaxed(&port->flow->stayed) * 1.024 / 512, 1000, 2);
}

/* What does not fit is no stay of nothing. */
Test(stay, of_too_many_bytes_for_too_long_is_not_noted)
{
	struct rnice_port *port = paced_port();

	store_relaxed(&port->dev->trip, 0);
	rnice_port_stayed(port, 64 << 20, T0, T0 + 6 * SEC, T0 + 6 * SEC);
	cr_expect_eq(load_relaxed(&port->flow->staying), 0);
}

/* ---- counters ---- */

Test(port, counters_and_latencies_show_up_in_the_statistics)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port = bulk_port(seg, plain);
	struct rnice_proc_stat st;
	struct rnice_device_stat dev;

	rnice_port_count(port, RNICE_CTR_QPS, 3);
	rnice_port_count(port, RNICE_CTR_QPS, -1);
	rnice_port_count(port, RNICE_CTR_UNCONTROLLED + RNICE_UNC_DIRECT, 1);
	rnice_port_latency(port, 100);
	rnice_port_take(port, 4096, T0);
	cr_assert(rnice_segment_proc(seg, 0, &st));
	cr_assert(rnice_segment_device(seg, 0, &dev));
	cr_expect_str_eq(dev.name, "dev");
	cr_expect(st.dev[0].used);
	cr_expect_not(st.dev[1].used);
	cr_expect_eq(st.dev[0].counter[RNICE_CTR_QPS], 2);
	cr_expect_eq(st.dev[0].counter[RNICE_CTR_UNCONTROLLED + RNICE_UNC_DIRECT], 1);
	cr_expect_eq(st.dev[0].counter[RNICE_CTR_INFLIGHT_BYTES], 4096);
	cr_expect_eq(st.dev[0].latency[3], 1);
	cr_expect_not(rnice_segment_device(seg, 1, &dev));
	cr_expect_not(rnice_segment_device(seg, RNICE_MAX_DEVICES, &dev));
	cr_expect_not(rnice_segment_proc(seg, RNICE_MAX_PROCS, &st));
}

/* ---- many at once; the truth is kept beside ---- */

#define HAMMER_WINDOW 4096

struct hammer {
	struct rnice_port *port;
	int64_t *truth; /* bytes that are admitted now, never more than that; takes */
	int64_t limit;
	uint64_t seed, until, least, most;
};

/*
 * Take and give back at once; exit status 1: the window was broken. The clock given stands
 * still: by a real one, bytes of a process that is off its CPU for too long stop counting, as
 * they should.
 */
static void *hammer(void *arg)
{
	struct hammer *h = arg;
	int64_t sum;

	for (unsigned i = 0; i % 256 || clock_now() < h->until; i++) {
		uint64_t bytes = h->least + draw(&h->seed, h->most - h->least + 1);

		if (!rnice_port_take(h->port, bytes, T0))
			continue;
		sum = add_seq_cst(h->truth, (int64_t)bytes) + (int64_t)bytes;
		if (sum > h->limit)
			return (void *)1;
		add_relaxed(h->truth + 1, 1);
		for (unsigned j = 0; j < i % 32; j++)
			cpu_relax();
		add_seq_cst(h->truth, -(int64_t)bytes);
		rnice_port_done(h->port, bytes, true, T0);
	}
	return NULL;
}

static int hammer_with_threads(struct rnice_segment *seg, struct hammer h)
{
	struct hammer each[2];
	pthread_t thread[2];
	void *result;
	int status = 0;

	h.port = bulk_port(seg, sized(0, HAMMER_WINDOW));
	rnice_port_backlog(h.port, true, T0);
	for (int i = 0; i < 2; i++) {
		each[i] = h;
		each[i].seed += (uint64_t)i * 77;
		pthread_create(&thread[i], NULL, hammer, &each[i]);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(thread[i], &result);
		status |= (int)(intptr_t)result;
	}
	return status;
}

/* Processes with two threads each; found by it in a second: a window without the second look. */
static void hammer_with_processes(uint64_t least, uint64_t most, int64_t limit)
{
	struct rnice_segment *seg = fresh_segment();
	struct hammer h = {.truth = shared_memory(4096),
			   .limit = limit,
			   .least = least,
			   .most = most,
			   .until = clock_now() + SEC};
	pid_t pid[3];

	for (int i = 0; i < 3; i++) {
		h.seed = 1000 + (uint64_t)i;
		if ((pid[i] = fork()) == 0)
			_exit(hammer_with_threads(seg, h));
	}
	for (int i = 0; i < 3; i++)
		cr_expect_eq(wait_for(pid[i]), 0);
	cr_expect_gt(h.truth[1], 1000);
}

Test(port, takes_of_one_size_never_exceed_the_window, .timeout = 30)
{
	hammer_with_processes(HAMMER_WINDOW, HAMMER_WINDOW, HAMMER_WINDOW);
}

Test(port, takes_of_any_size_exceed_the_window_by_less_than_one_take, .timeout = 30)
{
	hammer_with_processes(1, 3000, HAMMER_WINDOW - 1 + 3000);
}

Test(port, bytes_of_a_killed_process_come_back_within_milliseconds, .timeout = 20)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_port *port = bulk_port(seg, sized(0, 1000));
	uint64_t worst = 0;

	for (int round = 0; round < 20; round++) {
		uint32_t *full = shared_memory(4096);
		siginfo_t dead;
		uint64_t start;
		pid_t pid = fork();

		if (pid == 0) {
			struct rnice_port *own = bulk_port(seg, sized(0, 1000));

			while (!rnice_port_take(own, 1000, clock_now()))
				;
			store_release(full, 1);
			pause();
		}
		while (!load_acquire(full))
			sleep_ns(100 * USEC);
		cr_assert_not(rnice_port_take(port, 1, clock_now()));
		kill(pid, SIGKILL);
		waitid(P_PID, (id_t)pid, &dead, WEXITED | WNOWAIT); /* leaves the zombie */
		start = clock_now();
		while (!rnice_port_take(port, 1000, clock_now()))
			sleep_ns(50 * USEC);
		worst = worst > clock_now() - start ? worst : clock_now() - start;
		rnice_port_done(port, 1000, true, clock_now());
		wait_for(pid);
	}
	cr_log_info("back after at most %.1f ms", (double)worst / 1e6);
	cr_expect_lt(worst, 200 * MSEC); /* about 5 ms on a quiet machine */
}

Test(port, a_take_and_a_done_alone_cost_tens_of_nanoseconds)
{
	struct rnice_port *port = bulk_port(fresh_segment(), plain);
	uint64_t best = UINT64_MAX, now = T0;

	for (int round = 0; round < 200; round++) {
		uint64_t start = clock_now(), ns;

		for (int i = 0; i < 1000; i++, now += 50) {
			rnice_port_take(port, 4096, now);
			rnice_port_done(port, 4096, true, now);
		}
		ns = (clock_now() - start) / 1000;
		best = ns < best ? ns : best;
	}
	cr_log_info("take + done: %lu ns", (unsigned long)best);
	cr_expect_lt(best, 1000); /* sanitizers and loaded machines included */
}
