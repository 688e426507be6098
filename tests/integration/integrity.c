/* SPDX-License-Identifier: BSD-2-Clause */
#include "integrity.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

struct settings settings = {.type = IBV_QPT_RC, .rounds = 4, .ops = 250, .max_size = 256 << 10};

static struct world *current;

static void on_hang(void)
{
	if (current)
		world_print(current);
}

/* ---- random rounds ---- */

/* Nothing is under way: all memory must be as the model says. */
static void quiesce(struct world *w)
{
	struct side *s;

	for (unsigned int i = 0; i < 2 * w->plan.pairs; i++)
		drain(w, &w->side[i % 2].end[i / 2]);
	for (unsigned int i = 0; i < 2 * w->plan.pairs; i++)
		retire_all_recv(w, &w->side[i % 2].end[i / 2]);
	for (unsigned int i = 0; i < 2; i++) {
		s = &w->side[i];
		area_check(&s->source, "source", &s->end[0]);
		area_check(&s->recv, "receive", &s->end[0]);
		for (unsigned int k = 0; k < w->plan.pairs; k++) {
			area_check(&s->end[k].target, "target", &s->end[k]);
			area_check(&s->end[k].sink, "sink", &s->end[k]);
		}
	}
}

static struct end *draw_end(struct world *w)
{
	uint64_t side = vu_below(&w->rng, 2);

	return &w->side[w->plan.both_ways ? side : 0].end[vu_below(&w->rng, w->plan.pairs)];
}

static void post_some(struct world *w, struct end *e)
{
	uint64_t n = vu_range(&w->rng, 1, w->plan.chain);

	chain_begin(w, e);
	while (n--)
		chain_add_random(w);
	chain_post(w);
}

static void step(struct world *w)
{
	struct end *e = draw_end(w);
	uint64_t pick = vu_below(&w->rng, 1000);

	if (pick < 40)
		retire_send(w, e);
	else if (pick < 60)
		retire_recv(w, e);
	else if (pick < 80)
		post_bad_chain(w, e);
	else if (pick < 95)
		post_too_many(w, e);
	else if (pick < 110)
		post_aborted(w, e);
	else if (pick < 150)
		window_step(w, e);
	else if (pick < 160)
		quiesce(w);
	else if (pick < 190)
		vu_sleep((double)vu_below(&w->poll_rng, 3000) * 1e-6);
	else
		post_some(w, e);
}

/* A while after everything was done, a CQ that has an entry has one too many: pump() says so. */
static void expect_silence(struct world *w)
{
	double end = vu_now() + 0.005;

	do
		vu_check(!pump(w), "a completion after everything was complete");
	while (vu_now() < end);
}

static void random_round(struct world *w, unsigned int round)
{
	uint64_t posted = 0;

	world_open(w, round);
	current = w;
	while (posted < settings.ops) {
		step(w);
		posted = 0;
		for (unsigned int i = 0; i < 2 * w->plan.pairs; i++)
			posted += w->side[i % 2].end[i / 2].serial;
	}
	quiesce(w);
	expect_silence(w);
	current = NULL;
	world_close(w);
}

static int run_random(void)
{
	unsigned long completions = 0, messages = 0;
	static struct world w;

	for (unsigned int i = 0; i < settings.rounds; i++) {
		random_round(&w, i);
		completions += w.completions;
		messages += w.messages;
	}
	return vu_pass("%u rounds, %lu completions, %lu messages", (unsigned int)settings.rounds,
		       completions, messages);
}

/* ---- "the last byte is written last" ---- */

/* WRITE @len bytes and look at nothing but memory: when the last byte is new, so are all. */
static void last_byte_once(struct vu_pair *p, uint32_t len, uint64_t seed)
{
	uint8_t *last = p->mem[1].p + len - 1;
	struct ibv_sge sge[3];
	struct ibv_send_wr wr;
	uint8_t old;

	vu_fill(p->mem[0].p, len, seed);
	old = *last;
	if (p->mem[0].p[len - 1] == old)
		p->mem[0].p[len - 1] ^= 1;
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t from = (uint32_t)((uint64_t)len * i / 3);
		uint32_t to = (uint32_t)((uint64_t)len * (i + 1) / 3);

		sge[i] = (struct ibv_sge){(uintptr_t)p->mem[0].p + from, to - from,
					  p->mem[0].mr->lkey};
	}
	wr = vu_wr(IBV_WR_RDMA_WRITE, sge, seed, IBV_SEND_SIGNALED);
	wr.num_sge = 3;
	vu_wr_remote(&wr, p->mem[1].p, p->mem[1].mr->rkey);
	vu_must_post(p->qp[0].qp, &wr);
	while (__atomic_load_n(last, __ATOMIC_ACQUIRE) == old)
		sched_yield();
	vu_check(!memcmp(p->mem[0].p, p->mem[1].p, len),
		 "%u bytes: the last byte came before others", len);
	vu_cq_expect_ok(&p->scq[0], seed, "the WRITE");
}

static int run_last_byte(void)
{
	struct vu_pair_spec spec = {
		.mem = settings.max_size + 1, .send_wr = 4, .recv_wr = 1, .sge = 3};
	struct vu_rng r = {vu.seed};
	struct vu_pair p;

	vu_pair_open(&p, &spec);
	vu_at("spinning on the last byte of a WRITE");
	for (uint64_t i = 0; i < settings.rounds; i++)
		last_byte_once(&p, (uint32_t)vu_range(&r, 3, settings.max_size), i + 1);
	vu_pair_close(&p);
	return vu_pass("%u WRITEs of up to %u bytes, last byte last", (unsigned int)settings.rounds,
		       (unsigned int)settings.max_size);
}

/* ---- options ---- */

static enum ibv_qp_type type_of(const char *name)
{
	if (!strcmp(name, "rc"))
		return IBV_QPT_RC;
	if (!strcmp(name, "uc"))
		return IBV_QPT_UC;
	vu_check(!strcmp(name, "ud"), "--qp-type is rc, uc or ud, not \"%s\"", name);
	return IBV_QPT_UD;
}

int main(int argc, char **argv)
{
	const char *type = "rc", *api = "send", *poll = "cq", *mode = "random";
	const struct vu_opt opts[] = {
		{"mode", VU_OPT_STR, &mode, "random or last-byte"},
		{"qp-type", VU_OPT_STR, &type, "rc, uc or ud"},
		{"api", VU_OPT_STR, &api, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"poll", VU_OPT_STR, &poll, "how to poll: cq, ex (ibv_start_poll) or mixed"},
		{"rounds", VU_OPT_NUM, &settings.rounds, "worlds to build, or last-byte WRITEs"},
		{"ops", VU_OPT_NUM, &settings.ops, "operations in a world"},
		{"max-size", VU_OPT_NUM, &settings.max_size, "longest message, up to 4M"},
		{"imm-len", VU_OPT_FLAG, &settings.imm_len,
		 "check and log byte_len of RECV_RDMA_WITH_IMM"},
		{"fence-reads", VU_OPT_FLAG, &settings.fence_reads,
		 "fences together with READs and atomics (rxe 6.1 may hang)"},
		{"no-windows", VU_OPT_FLAG, &settings.no_windows, "no memory windows"},
		{"no-events", VU_OPT_FLAG, &settings.no_events, "no completion channels"},
		{"loose-wc", VU_OPT_FLAG, &settings.loose_wc,
		 "do not log completion fields that the specification leaves open"},
	};

	vu_parse(argc, argv, "integrity", "random work requests, checked against a model", opts,
		 VU_ARRAY(opts));
	settings.type = type_of(type);
	settings.api = vu_post_of(api);
	settings.poll = vu_poll_of(poll);
	vu_check(settings.max_size >= 64 && settings.max_size <= 4 << 20, "--max-size: 64 to 4M");
	vu_on_hang = on_hang;
	if (!strcmp(mode, "last-byte"))
		return run_last_byte();
	vu_check(!strcmp(mode, "random"), "--mode is random or last-byte, not \"%s\"", mode);
	return run_random();
}
