/* SPDX-License-Identifier: BSD-2-Clause */
/* Who gets how much of a port that all want, in made-up time. */
#include "sim_port.h"

#define GBIT 0.125 /* bytes per ns */
#define MBIT 0.000125

static struct sim s;

/* All get an equal share of a port that is kept busy, within @percent. */
static void expect_equal_shares(uint64_t ns, double percent, double least_sum)
{
	double sum = 0;

	for (unsigned i = 0; i < s.procs; i++)
		sum += sim_share(&s, i, ns);
	for (unsigned i = 0; i < s.procs; i++)
		cr_expect_float_eq(sim_share(&s, i, ns) * s.procs / sum, 1.0, percent / 100,
				   "process %u of %u has %.4f of %.4f", i, s.procs,
				   sim_share(&s, i, ns), sum);
	cr_expect_geq(sum, least_sum, "the port was idle: %.4f", sum);
}

/* One latency program that never stops. */
static void post_for_ever(uint64_t ns)
{
	struct rnice_proc_info info = {.cls = RNICE_CLASS_LATENCY, .policy = RNICE_POLICY_PREEMPT};
	struct rnice_port *port;
	uint64_t *line;

	cr_assert_eq(rnice_port_attach(join_as(s.seg, info), "dev", &port), 0);
	line = rnice_port_activity_line(port);
	for (uint64_t end = s.now + ns; s.now < end;) {
		bump_relaxed(line);
		sim_run(&s, MSEC);
	}
}

Test(share, two_to_five_processes_with_different_chunks_get_the_same)
{
	static const uint64_t sizes[] = {4096, 65536, 1 << 20, 10000, 300000};

	for (unsigned n = 2; n <= 5; n++) {
		s = (struct sim){.rate = 100 * GBIT, .procs = n};
		for (unsigned i = 0; i < n; i++)
			s.proc[i].info.chunk = s.proc[i].message = sizes[i];
		sim_start(&s);
		sim_run(&s, 100 * MSEC);
		sim_reset(&s);
		sim_run(&s, 400 * MSEC);
		expect_equal_shares(400 * MSEC, 5, 0.97);
	}
}

Test(share, the_same_under_protection)
{
	for (unsigned n = 2; n <= 5; n++) {
		s = (struct sim){.rate = 10 * GBIT, .procs = n};
		sim_start(&s);
		post_for_ever(2 * SEC);
		sim_reset(&s);
		post_for_ever(SEC);
		expect_equal_shares(SEC, 5, 0.9);
	}
}

Test(share, the_same_on_a_slow_port_that_is_paced)
{
	s = (struct sim){.rate = 100 * MBIT, .procs = 3, .trip = 100 * USEC};
	sim_start(&s);
	post_for_ever(5 * SEC);
	sim_reset(&s);
	post_for_ever(10 * SEC);
	expect_equal_shares(10 * SEC, 5, 0.9);
}

Test(share, a_message_of_64_MiB_that_cannot_be_cut_gets_its_share_and_not_more)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].message = 64 << 20;
	s.proc[1].message = 65536;
	sim_start(&s);
	sim_run(&s, 200 * MSEC);
	sim_reset(&s);
	sim_run(&s, 2 * SEC);
	expect_equal_shares(2 * SEC, 10, 0.9);
}

Test(share, a_process_that_was_idle_has_no_credit)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[1].from = 500 * MSEC;
	sim_start(&s);
	sim_run(&s, 500 * MSEC);
	sim_reset(&s);
	sim_run(&s, 100 * MSEC);
	/* It may lead by the slack of 2 ms and what was in the NIC, not by half a second. */
	cr_expect_geq(sim_share(&s, 0, 100 * MSEC), 0.40);
	cr_expect_leq(sim_share(&s, 0, 100 * MSEC), 0.60);
}

Test(share, a_process_alone_for_long_is_not_punished_when_another_comes)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].one_by_one = true;
	s.proc[0].message = 1 << 20;
	s.proc[1].from = 500 * MSEC;
	sim_start(&s);
	sim_run(&s, 500 * MSEC);
	sim_reset(&s);
	sim_run(&s, 100 * MSEC);
	/* A message at a time, each behind a window of the other (8 ms). */
	cr_expect_geq(s.proc[0].served, (1 << 20) * (100 / 9));
}

Test(share, who_comes_and_goes_gets_its_share_while_it_is_there)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 3};
	s.proc[1].from = 100 * MSEC;
	s.proc[1].to = 300 * MSEC;
	sim_start(&s);
	sim_run(&s, 100 * MSEC);
	sim_reset(&s);
	sim_run(&s, 200 * MSEC);
	expect_equal_shares(200 * MSEC, 8, 0.97);
	sim_reset(&s);
	sim_run(&s, 200 * MSEC);
	cr_expect_float_eq(sim_share(&s, 0, 200 * MSEC), 0.5, 0.04);
	cr_expect_float_eq(sim_share(&s, 2, 200 * MSEC), 0.5, 0.04);
}

Test(share, a_process_with_a_rate_limit_does_not_slow_the_others_down)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].info.rate = 125000000; /* 1 Gbit/s */
	sim_start(&s);
	sim_run(&s, 200 * MSEC);
	sim_reset(&s);
	sim_run(&s, 300 * MSEC);
	cr_expect_float_eq(sim_share(&s, 0, 300 * MSEC), 0.01, 0.001);
	cr_expect_geq(sim_share(&s, 1, 300 * MSEC), 0.97);
}

Test(share, a_process_with_a_shallow_queue_of_its_own_does_not_either)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].depth = s.proc[0].message = 4096;
	s.proc[0].trip = 100 * USEC;
	sim_start(&s);
	sim_run(&s, 200 * MSEC);
	sim_reset(&s);
	sim_run(&s, 300 * MSEC);
	cr_expect_geq(sim_share(&s, 0, 300 * MSEC) + sim_share(&s, 1, 300 * MSEC), 0.97);
}

Test(share, a_process_whose_peer_is_slow_does_not_hold_the_whole_window)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].trip = 50 * MSEC; /* its bytes sit in the NIC for so long */
	sim_start(&s);
	sim_run(&s, 200 * MSEC);
	sim_reset(&s);
	sim_run(&s, 500 * MSEC);
	cr_expect_geq(sim_share(&s, 1, 500 * MSEC), 0.45);
}

Test(share, a_process_with_a_small_window_of_its_own_sends_that_per_window_of_the_others)
{
	s = (struct sim){.rate = 100 * GBIT, .procs = 2};
	s.proc[0].info.policy = RNICE_POLICY_STATIC;
	sim_start(&s);
	sim_run(&s, 200 * MSEC);
	sim_reset(&s);
	sim_run(&s, 300 * MSEC);
	cr_expect_geq(s.proc[0].served, (256 << 10) * (300 / 9));
	cr_expect_geq(sim_share(&s, 0, 300 * MSEC) + sim_share(&s, 1, 300 * MSEC), 0.97);
}

Test(share, the_bytes_in_the_nic_stay_within_the_window)
{
	s = (struct sim){.rate = 10 * GBIT, .procs = 4};
	for (unsigned i = 0; i < 4; i++) {
		s.proc[i].info.window = 64 << 10;
		s.proc[i].message = 4096 << (i % 2);
	}
	sim_start(&s);
	sim_run(&s, 300 * MSEC);
	cr_expect_leq(s.most, (64 << 10) - 1 + 8192);
}

Test(share, a_window_of_one_byte_lets_one_message_after_the_other_pass)
{
	s = (struct sim){.rate = 10 * GBIT, .procs = 2};
	for (unsigned i = 0; i < 2; i++) {
		s.proc[i].info.window = 1;
		s.proc[i].message = 100000;
	}
	sim_start(&s);
	sim_run(&s, 300 * MSEC);
	cr_expect_eq(s.most, 100000);
	for (unsigned i = 0; i < 2; i++)
		cr_expect_geq(sim_share(&s, i, 300 * MSEC), 0.2);
}
