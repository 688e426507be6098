/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/plan.h"

uint64_t plan_entry_rest(const struct swr *w)
{
	uint32_t at = w->sge_at, off = w->sge_off;

	while (w->wr.sg_list[at].length == off) {
		at++;
		off = 0;
	}
	return w->wr.sg_list[at].length - off;
}

/* Copy the next @left bytes' worth of entries; how many entries that took. */
static int take_sges(struct swr *w, uint64_t left, struct ibv_sge *sge)
{
	const struct ibv_sge *from;
	uint32_t rest;
	int n = 0;

	while (left) {
		from = &w->wr.sg_list[w->sge_at];
		rest = from->length - w->sge_off;
		if (rest) {
			sge[n].addr = from->addr + w->sge_off;
			sge[n].lkey = from->lkey;
			sge[n].length = rest > left ? (uint32_t)left : rest;
			left -= sge[n].length;
			w->sge_off += sge[n].length;
			n++;
		}
		if (w->sge_off == from->length) {
			w->sge_at++;
			w->sge_off = 0;
		}
	}
	return n;
}

void plan_chunk(struct swr *w, uint64_t piece, struct ibv_send_wr *out, struct ibv_sge *sge)
{
	bool first = !w->started, last = plan_is_last(w, piece);

	*out = w->wr;
	w->started = true;
	if (first && last) { /* whole: as the program wrote it, empty entries included */
		w->cut = w->length;
		return;
	}
	out->sg_list = sge;
	out->num_sge = take_sges(w, piece, sge);
	out->wr.rdma.remote_addr += w->cut;
	if (!first)
		out->send_flags &= ~(unsigned int)IBV_SEND_FENCE;
	if (!last) {
		out->send_flags &= ~(unsigned int)IBV_SEND_SOLICITED;
		if (out->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			out->opcode = IBV_WR_RDMA_WRITE;
	}
	w->cut += piece;
}
