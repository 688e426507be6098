/* SPDX-License-Identifier: BSD-2-Clause */
/* The planner: chunks of one WR put together are that WR, byte for byte, flag for flag. */
#include "interpose/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX_SGE 8
#define REMOTE 0x700000000000ull

struct pieces {
	int n;
	uint64_t bytes;
	struct ibv_send_wr first, last, middle;
	int imms, solicited, fences;
};

static struct swr make(enum ibv_wr_opcode op, struct ibv_sge *sge, int n, unsigned int flags)
{
	struct swr w = {.wr = {.opcode = op,
			       .sg_list = sge,
			       .num_sge = n,
			       .send_flags = flags,
			       .imm_data = 0x1234}};

	w.wr.wr.rdma.remote_addr = REMOTE;
	w.wr.wr.rdma.rkey = 77;
	w.length = plan_length(&w.wr);
	w.cuttable = plan_cuttable(IBV_QPT_RC, op, true);
	return w;
}

/* Every byte of the WR, in order: the next one must be where the chunks say. */
struct walk {
	const struct ibv_sge *sge;
	uint32_t off;
};

static void expect_bytes(struct walk *at, const struct ibv_send_wr *chunk, uint64_t *offset)
{
	int i;
	uint32_t left, step;
	uint64_t addr;

	cr_assert_eq(chunk->wr.rdma.remote_addr, REMOTE + *offset);
	cr_assert_eq(chunk->wr.rdma.rkey, 77);
	for (i = 0; i < chunk->num_sge; i++) {
		addr = chunk->sg_list[i].addr;
		for (left = chunk->sg_list[i].length; left; left -= step) {
			while (at->off == at->sge->length) {
				at->sge++;
				at->off = 0;
			}
			step = at->sge->length - at->off;
			step = step < left ? step : left;
			cr_assert_eq(addr, at->sge->addr + at->off);
			cr_assert_eq(chunk->sg_list[i].lkey, at->sge->lkey);
			addr += step;
			at->off += step;
			*offset += step;
		}
	}
}

static struct pieces cut_all(struct swr *w, uint64_t max)
{
	struct ibv_sge original[MAX_SGE], scratch[MAX_SGE];
	struct walk at = {.sge = original};
	struct pieces p = {0};
	struct ibv_send_wr out;
	uint64_t piece;
	bool last;

	memcpy(original, w->wr.sg_list, (size_t)w->wr.num_sge * sizeof(original[0]));
	do {
		piece = plan_piece(w, max);
		last = plan_is_last(w, piece);
		plan_chunk(w, piece, &out, scratch);
		cr_assert_leq(out.num_sge, w->wr.num_sge);
		expect_bytes(&at, &out, &p.bytes);
		p.imms += out.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		p.solicited += !!(out.send_flags & IBV_SEND_SOLICITED);
		p.fences += !!(out.send_flags & IBV_SEND_FENCE);
		if (!p.n++)
			p.first = out;
		else if (!last)
			p.middle = out;
		p.last = out;
	} while (!last);
	return p;
}

static int check_cut(enum ibv_wr_opcode op, const uint32_t *lens, int n, uint64_t max)
{
	struct ibv_sge sge[MAX_SGE];
	struct pieces p;
	struct swr w;
	int i;

	for (i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){.addr = 0x1000000000ull * (uint64_t)(i + 1) + 13,
					  .length = lens[i],
					  .lkey = 100u + (uint32_t)i};
	w = make(op, sge, n, IBV_SEND_FENCE | IBV_SEND_SOLICITED);
	p = cut_all(&w, max);
	cr_assert_eq(p.bytes, w.length);
	cr_assert_eq(p.fences, 1);
	cr_assert(p.first.send_flags & IBV_SEND_FENCE);
	cr_assert_eq(p.solicited, 1);
	cr_assert(p.last.send_flags & IBV_SEND_SOLICITED);
	return p.n;
}

Test(plan, cuts_write_and_read_over_every_sg_list_shape)
{
	static const uint32_t shapes[][4] = {
		{1, 0, 0, 0},	       {0, 1, 0, 2},	  {4095, 0, 0, 0}, {4096, 0, 0, 0},
		{4097, 0, 0, 0},       {7, 4096, 0, 1},	  {1, 1, 1, 1},	   {0, 0, 9000, 0},
		{1023, 1025, 1, 4095}, {4096, 4096, 1, 0}};
	static const uint64_t maxes[] = {1, 2, 3, 255, 256, 4095, 4096, 4097, 1 << 20};
	unsigned int s, m;
	int n, expect;
	uint64_t total;

	for (s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (m = 0; m < sizeof(maxes) / sizeof(maxes[0]); m++)
			for (n = 1; n <= 4; n++) {
				total = 0;
				for (int i = 0; i < n; i++)
					total += shapes[s][i];
				expect = total ? (int)((total + maxes[m] - 1) / maxes[m]) : 1;
				cr_assert_eq(check_cut(IBV_WR_RDMA_WRITE, shapes[s], n, maxes[m]),
					     expect);
				cr_assert_eq(check_cut(IBV_WR_RDMA_READ, shapes[s], n, maxes[m]),
					     expect);
			}
}

Test(plan, cut_by_entry_no_piece_has_more_than_one_sge)
{
	static const uint32_t lens[] = {5000, 0, 3, 4096, 4097, 0};
	static const uint64_t maxes[] = {1, 3, 4096, 5000, 13195};
	struct ibv_sge sge[MAX_SGE], scratch[MAX_SGE];
	struct ibv_send_wr out;
	uint64_t bytes, piece;
	struct swr w;

	for (unsigned int m = 0; m < sizeof(maxes) / sizeof(maxes[0]); m++) {
		for (int i = 0; i < 6; i++)
			sge[i] = (struct ibv_sge){.addr = 0x10000u * (unsigned int)(i + 1),
						  .length = lens[i]};
		w = make(IBV_WR_RDMA_WRITE, sge, 6, 0);
		w.by_entry = true;
		for (bytes = 0; bytes < w.length; bytes += piece) {
			piece = plan_piece(&w, maxes[m]);
			cr_assert(piece && piece <= maxes[m]);
			plan_chunk(&w, piece, &out, scratch);
			cr_assert_eq(out.num_sge, 1);
			cr_assert_eq(out.sg_list[0].length, piece);
			cr_assert_eq(out.wr.rdma.remote_addr, REMOTE + bytes);
		}
		cr_assert_eq(bytes, w.length);
	}
}

Test(plan, what_fits_whole_is_not_cut_by_entry)
{
	struct ibv_sge sge[2] = {{.addr = 0x1000, .length = 10}, {.addr = 0x2000, .length = 20}};
	struct swr w = make(IBV_WR_RDMA_WRITE, sge, 2, 0);

	w.by_entry = true;
	cr_assert_eq(plan_piece(&w, 30), 30);
}

Test(plan, the_immediate_goes_once_with_the_last_chunk)
{
	struct ibv_sge sge = {.addr = 0x5000, .length = 10000, .lkey = 1};
	struct swr w = make(IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, 0);
	struct pieces p = cut_all(&w, 4096);

	cr_assert_eq(p.n, 3);
	cr_assert_eq(p.imms, 1);
	cr_assert_eq(p.last.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	cr_assert_eq(p.last.imm_data, 0x1234);
	cr_assert_eq(p.first.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(p.middle.opcode, IBV_WR_RDMA_WRITE);
}

Test(plan, a_write_with_imm_stays_whole_when_told_so)
{
	cr_assert_not(plan_cuttable(IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, false));
	cr_assert(plan_cuttable(IBV_QPT_RC, IBV_WR_RDMA_WRITE, false));
}

Test(plan, everything_that_is_one_message_to_the_responder_stays_whole)
{
	static const enum ibv_wr_opcode whole[] = {IBV_WR_SEND,
						   IBV_WR_SEND_WITH_IMM,
						   IBV_WR_SEND_WITH_INV,
						   IBV_WR_ATOMIC_CMP_AND_SWP,
						   IBV_WR_ATOMIC_FETCH_AND_ADD,
						   IBV_WR_LOCAL_INV,
						   IBV_WR_BIND_MW,
						   IBV_WR_TSO,
						   IBV_WR_ATOMIC_WRITE};
	struct ibv_sge sge[2] = {{.addr = 1, .length = 5000, .lkey = 1},
				 {.addr = 9999, .length = 5000, .lkey = 2}};
	struct ibv_send_wr out;
	unsigned int i;
	struct swr w;

	for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		w = make(whole[i], sge, 2, IBV_SEND_SIGNALED);
		cr_assert_not(w.cuttable);
		cr_assert_eq(plan_piece(&w, 1), 10000);
		plan_chunk(&w, 10000, &out, NULL);
		cr_assert_eq(memcmp(&out, &w.wr, sizeof(out)), 0);
		cr_assert_eq(w.cut, w.length);
	}
}

Test(plan, unreliable_qps_are_never_cut)
{
	cr_assert_not(plan_cuttable(IBV_QPT_UC, IBV_WR_RDMA_WRITE, true));
	cr_assert_not(plan_cuttable(IBV_QPT_UD, IBV_WR_SEND, true));
	cr_assert(plan_cuttable(IBV_QPT_XRC_SEND, IBV_WR_RDMA_READ, true));
}

Test(plan, an_empty_message_is_one_chunk_as_the_program_wrote_it)
{
	struct swr w = make(IBV_WR_RDMA_WRITE, NULL, 0, IBV_SEND_FENCE);
	struct ibv_send_wr out;

	cr_assert_eq(plan_piece(&w, 4096), 0);
	cr_assert(plan_is_last(&w, 0));
	plan_chunk(&w, 0, &out, NULL);
	cr_assert_eq(out.num_sge, 0);
	cr_assert_eq(out.send_flags, IBV_SEND_FENCE);
}

Test(plan, lengths_beyond_32_bits_are_summed_right)
{
	struct ibv_sge sge[3] = {{.addr = 0, .length = UINT32_MAX, .lkey = 1},
				 {.addr = 0x200000000ull, .length = 0x80000000u, .lkey = 2},
				 {.addr = 0x400000000ull, .length = 1, .lkey = 3}};
	struct swr w = make(IBV_WR_RDMA_WRITE, sge, 3, 0);
	struct pieces p;

	cr_assert_eq(w.length, 0x180000000ull);
	p = cut_all(&w, 0x80000000u);
	cr_assert_eq(p.n, 3);
	cr_assert_eq(p.bytes, 0x180000000ull);
}

Test(plan, inline_payload_is_cut_from_the_captured_copy)
{
	struct ibv_sge sge = {.addr = 0x9000, .length = 100, .lkey = 0};
	struct swr w = make(IBV_WR_RDMA_WRITE, &sge, 1, IBV_SEND_INLINE);
	struct pieces p = cut_all(&w, 30);

	cr_assert_eq(p.n, 4);
	cr_assert(p.middle.send_flags & IBV_SEND_INLINE);
}
