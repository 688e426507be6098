/* SPDX-License-Identifier: BSD-2-Clause */
/* stuck: one SEND every 0.4 s to a peer that has no receive, so that none completes. */
#include "verbs_util.h"

#define SENDS 6

int main(int argc, char **argv)
{
	struct vu_pair_spec spec = {.recv_wr = 1, .send_wr = 64, .cqe = 64, .mem = 64};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct vu_pair p;

	vu_parse(argc, argv, "stuck", "SENDs that nobody receives", NULL, 0);
	vu_pair_open(&p, &spec);
	sge = (struct ibv_sge){(uintptr_t)p.mem[0].p, 64, p.mem[0].mr->lkey};
	wr = vu_wr(IBV_WR_SEND, &sge, 0, IBV_SEND_SIGNALED);
	for (int i = 0; i < SENDS; i++) {
		vu_check(!ibv_post_send(p.qp[0].qp, &wr, &bad), "a SEND was refused");
		vu_sleep(0.4);
	}
	vu_pair_close(&p);
	return vu_pass("%d SENDs", SENDS);
}
