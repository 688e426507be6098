/* SPDX-License-Identifier: BSD-2-Clause */
/* The control loop as arithmetic, with a port of one line: a rate and a round trip. */
#include "test_segment.h"

#include "scheduler/control.h"

#define T0 (100 * SEC)

struct model {
	struct rnice_control c;
	struct rnice_control_in in;
	struct rnice_rules rules;
	double rate;	       /* of the port, bytes/s */
	uint64_t trip;	       /* from the end of a chunk until its bytes are free again, ns */
	uint64_t period, next; /* of a latency program; 0: none */
	bool saves;	       /* it lets through at once what it did not use before */
	uint64_t given; /* bytes in the NIC as the program set them, once chunks wait; 0: not */
};

static struct model model(double rate, uint64_t trip, uint32_t mtu)
{
	struct model m = {.rate = rate, .trip = trip};

	m.in.now = T0;
	m.in.mtu = mtu;
	m.in.preempt_ns = 10 * USEC;
	m.in.backlog = true;
	m.next = T0;
	rnice_control_step(&m.c, &m.in, &m.rules);
	return m;
}

/* From post to completion where nothing waits, ns. */
static double own_stay(const struct model *m)
{
	return (m->saves ? 0 : m->rules.chunk / m->rate * 1e9) + (double)m->trip;
}

/* Bytes per second with this window: the port is never faster, a round trip carries one window. */
static double speed(const struct model *m)
{
	double s = (double)m->rules.window / own_stay(m) * 1e9;

	s = s < m->rate ? s : m->rate;
	return m->rules.paced && m->c.pace < s ? (double)m->c.pace : s;
}

/* How long a chunk is in the NIC: behind a full window, or a trip of its own. */
static double stay(const struct model *m)
{
	double queued = (double)(m->given ? m->given : m->rules.window) / speed(m) * 1e9;

	return m->rules.paced && (double)m->c.pace < m->rate ? own_stay(m) : queued;
}

/* @ns of it; the bytes served. */
static double run(struct model *m, uint64_t ns)
{
	double sum = 0, part, left = 0;

	for (uint64_t end = m->in.now + ns; m->in.now < end;) {
		part = speed(m) / 1e3 + left;
		m->in.done = m->in.backlog ? (uint64_t)part : 0;
		left = part - (double)m->in.done;
		sum += (double)m->in.done;
		m->in.staying = m->in.done;
		m->in.pieces = m->in.done / m->rules.chunk + 1;
		m->in.stayed = (uint64_t)(stay(m) / 1024 * (double)m->in.done);
		m->in.inflight = m->in.backlog ? m->rules.window : 0;
		if (m->given && (!m->rules.paced || (double)m->c.pace >= m->rate))
			m->in.inflight = m->given;
		m->in.now += RNICE_TICK_NS;
		m->in.active = m->period && m->in.now >= m->next;
		if (m->in.active)
			m->next += m->period > RNICE_TICK_NS ? m->period : RNICE_TICK_NS;
		rnice_control_step(&m->c, &m->in, &m->rules);
	}
	return sum;
}

static const double rates[] = {1e6, 12.5e6, 125e6, 1.25e9, 12.5e9, 50e9};
#define EACH_RATE(r) for (const double *r = rates; r < rates + sizeof(rates) / sizeof(*rates); r++)

Test(control, the_rate_is_found_within_a_tenth_from_1_MB_to_50_GB_per_second)
{
	EACH_RATE(r)
	{
		struct model m = model(*r, 10 * USEC, 4096);

		run(&m, 2 * SEC);
		cr_expect_geq((double)m.c.rate, 0.9 * *r, "rate %g", *r);
		cr_expect_leq((double)m.c.rate, 1.01 * *r, "rate %g", *r);
	}
}

Test(control, open_bulk_runs_at_full_speed_with_at_most_10_ms_in_the_nic)
{
	EACH_RATE(r)
	{
		struct model m = model(*r, 10 * USEC, 4096);
		double in_nic;

		run(&m, SEC);
		cr_expect_geq(run(&m, SEC), 0.99 * *r, "rate %g", *r);
		in_nic = ((double)m.rules.window + m.rules.chunk) / *r;
		/* Two packets are the least, even where they take longer. */
		cr_expect(in_nic <= 0.010 || m.rules.window == 2 * 4096, "%g: %g", *r, in_nic);
	}
}

Test(control, open_full_speed_is_reached_within_20_ms_at_400_gbit)
{
	struct model m = model(50e9, 10 * USEC, 4096);

	run(&m, 20 * MSEC);
	cr_expect_geq(run(&m, 10 * MSEC), 0.99 * 50e9 / 100);
}

Test(control, protected_bulk_keeps_nine_tenths_at_any_rate)
{
	EACH_RATE(r)
	{
		struct model m = model(*r, 10 * USEC, 4096);

		m.period = 1;
		run(&m, 3 * SEC);
		cr_expect_geq(run(&m, 10 * SEC), 9.0 * *r, "rate %g", *r);
	}
}

Test(control, a_chunk_takes_half_the_preemption_time_within_its_bounds)
{
	EACH_RATE(r)
	{
		struct model m = model(*r, 10 * USEC, 4096);
		double aim;

		m.period = 1;
		run(&m, 5 * SEC);
		aim = (double)m.c.rate * 5e-6;
		aim = aim < 4096 ? 4096 : aim > 1 << 20 ? 1 << 20 : aim;
		cr_expect_leq(m.rules.chunk, aim, "rate %g", *r);
		cr_expect_geq(m.rules.chunk, aim - 4096, "rate %g", *r);
	}
}

Test(control, a_chunk_is_whole_packets_for_any_mtu)
{
	static const uint32_t mtus[] = {1,    255,  256,  257,	1023,  1024,	1025,
					2048, 4095, 4096, 4097, 65536, 1048575, 1048576};

	for (size_t i = 0; i < sizeof(mtus) / sizeof(mtus[0]); i++) {
		struct model m = model(12.5e9, 10 * USEC, mtus[i]);

		for (m.period = 0; m.period < 2; m.period++) {
			run(&m, 300 * MSEC);
			cr_expect_eq(m.rules.chunk % mtus[i], 0, "mtu %u", mtus[i]);
			cr_expect_geq(m.rules.chunk, mtus[i]);
			cr_expect_leq(m.rules.chunk, RNICE_CHUNK_MAX);
			cr_expect_geq(m.rules.window, m.rules.chunk);
		}
	}
}

Test(control, a_slow_port_gets_two_chunks_of_one_packet)
{
	struct model m = model(12.5e6, 100, 4096);

	m.period = 1;
	run(&m, 10 * SEC);
	cr_expect_eq(m.rules.chunk, 4096);
	cr_expect_eq(m.rules.window, 2 * m.rules.chunk);
}

Test(control, a_long_round_trip_gets_as_many_chunks_as_it_takes)
{
	struct model m = model(12.5e9, 40 * USEC, 4096);

	m.period = 1;
	run(&m, 5 * SEC);
	cr_expect_geq(m.rules.window / m.rules.chunk, 8);
	cr_expect_geq(run(&m, SEC), 0.95 * 12.5e9);
}

Test(control, a_slow_port_that_saves_up_gets_chunks_of_two_packets_as_long_as_it_does)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);

	m.period = 1;
	m.saves = true;
	run(&m, 3 * SEC);
	cr_expect_eq(m.rules.chunk, 8192);
	cr_expect_eq(m.rules.window, 2 * m.rules.chunk);
	m.saves = false;
	run(&m, 15 * SEC);
	cr_expect_eq(m.rules.chunk, 4096);
	m.saves = true;
	run(&m, 35 * SEC);
	cr_expect_eq(m.rules.chunk, 8192);
}

/* Two do not fit into the bucket: that is tried for a moment now and then. */
Test(control, chunks_of_two_packets_are_given_up_where_the_second_waits)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);
	unsigned two = 0;

	m.period = 1;
	for (int i = 0; i < 60000; i++) {
		m.saves = m.rules.chunk == 4096;
		run(&m, MSEC);
		two += m.rules.chunk == 8192;
	}
	cr_expect_gt(two, 0);
	cr_expect_lt(two, 600);
}

Test(control, the_largest_packets_are_not_paired)
{
	struct model m = model(12.5e6, 100 * USEC, RNICE_CHUNK_MAX);

	m.period = 1;
	m.saves = true;
	run(&m, 5 * SEC);
	cr_expect_eq(m.rules.chunk, RNICE_CHUNK_MAX);
}

/* The edge is where chunks begin to wait; the pace is found and kept just below it. */
static void expect_just_below_the_edge(struct model *m, double least)
{
	double sum = 0, above = 0;

	for (int i = 0; i < 20000; i++) {
		sum += run(m, MSEC);
		above += (double)m->c.pace > 1.01 * m->rate;
	}
	cr_expect_geq(sum / 20, least * m->rate, "%g of %g", sum / 20, m->rate);
	cr_expect_leq(above / 20000, 0.05, "%g of the time above", above / 20000);
}

Test(control, a_slow_port_is_held_just_below_its_rate)
{
	static const double slow[] = {0.3e6, 1e6, 12.5e6, 50e6};

	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
		struct model m = model(slow[i], 100 * USEC, 4096);

		m.period = 1;
		run(&m, 5 * SEC);
		expect_just_below_the_edge(&m, 0.96);
	}
}

Test(control, a_slow_port_is_held_just_below_its_rate_whatever_window_is_given)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);

	m.given = 1 << 20;
	m.period = 1;
	run(&m, 5 * SEC);
	expect_just_below_the_edge(&m, 0.9);
}

Test(control, a_slow_port_is_found_from_nothing_within_half_a_second)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);

	m.period = 1;
	run(&m, 500 * MSEC);
	cr_expect_geq(run(&m, 500 * MSEC), 0.9 * 0.5 * 12.5e6);
}

Test(control, a_pace_follows_a_port_that_becomes_slower_and_faster)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);

	m.period = 1;
	run(&m, 5 * SEC);
	m.rate = 6e6;
	run(&m, 60 * SEC);
	expect_just_below_the_edge(&m, 0.9);
	m.rate = 12.5e6;
	run(&m, 20 * SEC);
	expect_just_below_the_edge(&m, 0.9);
}

Test(control, a_long_round_trip_costs_a_slow_port_nothing)
{
	struct model m = model(12.5e6, 3 * MSEC, 4096);

	m.period = 1;
	run(&m, 5 * SEC);
	expect_just_below_the_edge(&m, 0.96);
}

/* As on a machine that becomes busy: nothing waits, but everything takes longer than before. */
Test(control, a_round_trip_that_becomes_longer_is_no_queue_for_long)
{
	struct model m = model(12.5e6, 100 * USEC, 4096);

	m.period = 1;
	m.saves = true;
	run(&m, 5 * SEC);
	m.trip = 400 * USEC;
	run(&m, SEC);
	cr_expect_geq(run(&m, SEC), 0.95 * m.rate);
}

/* Polled once in 3 ms: every stay is long, but none is longer than the others. */
Test(control, completions_seen_late_cost_a_paced_program_no_more_than_a_fifth)
{
	struct model m = model(12.5e6, 3 * MSEC, 4096);

	m.period = 1;
	m.in.given = 1 << 20;
	run(&m, 2 * SEC);
	cr_expect_geq((double)m.c.pace, 0.75 * run(&m, SEC));
}

Test(control, a_fast_port_is_not_paced)
{
	struct model m = model(1.25e9, 10 * USEC, 4096);

	m.period = 1;
	run(&m, 5 * SEC);
	cr_expect_not(m.rules.paced);
}

Test(control, an_idle_program_does_not_make_the_port_look_slow)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);
	uint64_t before;

	run(&m, SEC);
	before = m.c.rate;
	m.in.backlog = false;
	run(&m, 600 * SEC);
	cr_expect_geq(m.c.rate, before);
}

Test(control, a_protected_spell_does_not_collapse_the_rate)
{
	struct model m = model(12.5e9, 20 * USEC, 4096);

	run(&m, SEC);
	m.period = 1;
	run(&m, 120 * SEC);
	cr_expect_geq((double)m.c.rate, 0.85 * 12.5e9);
}

Test(control, a_port_that_became_slower_is_noticed_within_a_minute)
{
	struct model m = model(50e9, 10 * USEC, 4096);

	run(&m, SEC);
	m.rate = 12.5e9;
	run(&m, 60 * SEC);
	cr_expect_leq((double)m.c.rate, 1.1 * 12.5e9);
}

Test(control, completions_reported_late_do_not_make_the_port_look_fast)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);

	run(&m, SEC);
	/* A program that polls once in 15 ms: a whole window at once, and the rest of the time 0.
	 */
	for (int i = 0; i < 2000; i++) {
		m.in.done = i % 15 ? 0 : m.rules.window;
		m.in.inflight = m.rules.window;
		m.in.now += RNICE_TICK_NS;
		m.in.active = false;
		rnice_control_step(&m.c, &m.in, &m.rules);
	}
	cr_expect_leq((double)m.c.rate, 1.01 * 12.5e9);
}

Test(control, one_post_protects_for_the_hold_time_only)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);

	run(&m, SEC);
	m.period = 3600 * SEC;
	m.next = m.in.now;
	run(&m, RNICE_HOLD_NS - 2 * MSEC);
	cr_expect(rnice_control_protected(&m.c, m.in.now));
	run(&m, 4 * MSEC);
	cr_expect_not(rnice_control_protected(&m.c, m.in.now));
}

Test(control, a_heartbeat_every_second_is_protected_from_the_second_one_on)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);

	m.period = SEC;
	run(&m, 1500 * MSEC);
	for (int i = 0; i < 10000; i++) {
		run(&m, MSEC);
		cr_assert(rnice_control_protected(&m.c, m.in.now));
	}
}

Test(control, a_heartbeat_every_five_seconds_does_not_keep_bulk_down)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);
	unsigned down = 0;

	m.period = 5 * SEC;
	run(&m, 20 * SEC);
	for (int i = 0; i < 20000; i++) {
		run(&m, MSEC);
		down += rnice_control_protected(&m.c, m.in.now);
	}
	cr_expect_leq(down, 4 * 101);
}

Test(control, a_pause_of_any_length_is_survived)
{
	struct model m = model(12.5e9, 10 * USEC, 4096);

	for (uint64_t pause = MSEC; pause < UINT64_C(1) << 62; pause *= 7) {
		m.in.now += pause;
		run(&m, 50 * MSEC);
		cr_expect_leq((double)m.c.rate, 1.01 * 12.5e9);
	}
}

static void check_rules(const struct rnice_rules *r)
{
	cr_assert_geq(r->chunk, 1);
	cr_assert_leq(r->chunk, RNICE_CHUNK_MAX);
	cr_assert_geq(r->window, r->chunk);
	cr_assert_leq(r->window, UINT64_C(1) << 40);
	cr_assert_geq((uint64_t)r->slack_kib << 10, r->chunk);
	cr_assert_leq(r->stale_ms, 10000);
	cr_assert_geq(r->stale_ms, 20);
	cr_assert_leq(r->asked_us, 20000);
	cr_assert_geq(r->asked_us, 2000);
	cr_assert_leq(r->retry_us, 1000);
	cr_assert_geq(r->retry_us, 20);
}

Test(control, any_garbage_in_state_and_input_gives_rules_within_their_bounds)
{
	uint64_t rnd = 4711;

	for (int i = 0; i < 200000; i++) {
		struct rnice_control_in in;
		struct rnice_control c;
		struct rnice_rules r;
		unsigned char *p = (unsigned char *)&c;

		for (size_t j = 0; j < sizeof(c); j++)
			p[j] = (unsigned char)draw(&rnd, 256);
		if (i % 2) /* words that are nearly sensible */
			for (size_t j = 7; j < sizeof(c); j += 8)
				p[j] = p[j - 1] = p[j - 2] = p[j - 3] = 0;
		in.now = draw(&rnd, UINT64_MAX) >> draw(&rnd, 64);
		in.done = draw(&rnd, UINT64_MAX) >> draw(&rnd, 64);
		in.inflight = draw(&rnd, UINT64_MAX) >> draw(&rnd, 64);
		in.preempt_ns = draw(&rnd, UINT64_MAX) >> draw(&rnd, 64);
		in.mtu = (uint32_t)(draw(&rnd, UINT32_MAX) >> draw(&rnd, 32));
		in.given = draw(&rnd, UINT64_MAX) >> draw(&rnd, 64);
		in.automatic = draw(&rnd, 2);
		in.active = draw(&rnd, 2);
		in.backlog = draw(&rnd, 2);
		for (int j = 0; j < 5; j++) {
			rnice_control_step(&c, &in, &r);
			check_rules(&r);
			in.now += draw(&rnd, 3 * MSEC);
		}
	}
}

Test(control, out_of_any_garbage_it_finds_back_to_the_truth)
{
	uint64_t rnd = 815;

	for (int i = 0; i < 200; i++) {
		struct model m = model(12.5e9, 10 * USEC, 4096);
		unsigned char *p = (unsigned char *)&m.c;

		for (size_t j = 0; j < sizeof(m.c); j++)
			p[j] = (unsigned char)draw(&rnd, 256);
		run(&m, 2 * SEC);
		cr_expect_geq((double)m.c.rate, 0.9 * 12.5e9);
		cr_expect_leq((double)m.c.rate, 1.01 * 12.5e9);
	}
}

Test(control, muldiv_does_not_overflow)
{
	cr_expect_eq(rnice_muldiv(UINT64_MAX, UINT64_MAX, UINT64_MAX), UINT64_MAX);
	cr_expect_eq(rnice_muldiv(UINT64_MAX, 2, 1), UINT64_MAX);
	cr_expect_eq(rnice_muldiv(UINT64_MAX, 10, 100), UINT64_MAX / 10);
	cr_expect_eq(rnice_muldiv(1, 1, 0), UINT64_MAX);
	cr_expect_eq(rnice_muldiv(7, 3, 2), 10);
}
