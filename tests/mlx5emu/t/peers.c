/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several processes: a killed peer is noticed and leaves nothing behind, forked children have
 * devices of their own, and the parent's go on working.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

static const struct pair_opt quick = {.timeout = 12, .retry_cnt = 1};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *mem;
};

static void end_open(struct end *e, struct card *card)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {64, 64, 1, 1, 0}};

	must((e->ctx = open_device(NULL)) != NULL);
	must((e->pd = ibv_alloc_pd(e->ctx)) != NULL);
	must((e->cq = ibv_create_cq(e->ctx, 128, NULL, NULL, 0)) != NULL);
	attr.send_cq = attr.recv_cq = e->cq;
	must((e->qp = ibv_create_qp(e->pd, &attr)) != NULL);
	must((e->mem = calloc(1, MEM)) != NULL);
	must((e->mr = ibv_reg_mr(e->pd, e->mem, MEM,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
	card->qpn = e->qp->qp_num;
	card->rkey = e->mr->rkey;
	card->addr = (uintptr_t)e->mem;
	must(!ibv_query_gid(e->ctx, 1, 1, &card->gid));
}

static int write_to(struct end *e, const struct card *to, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)e->mem, len, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.rdma.remote_addr = to->addr;
	wr.wr.rdma.rkey = to->rkey;
	if (ibv_post_send(e->qp, &wr, &bad))
		return -1;
	return wait_wc(e->cq).status;
}

/* The child: gives its card, takes the other one, writes until it is killed. */
static void child(int in, int out)
{
	struct card mine, other;
	struct end e;

	end_open(&e, &mine);
	must(write(out, &mine, sizeof(mine)) == sizeof(mine));
	must(read(in, &other, sizeof(other)) == sizeof(other));
	must(!qp_to_rts(e.qp, other.qpn, &other.gid, &quick));
	must(write(out, "r", 1) == 1);
	while (write_to(&e, &other, 65536) == IBV_WC_SUCCESS)
		;
	_exit(0);
}

/* One killed child: what the survivor's next WRITE says. */
static int kill_once(int delay_us)
{
	int to[2], from[2], status;
	struct card mine, other;
	struct end e;
	pid_t pid;
	char r;

	must(!pipe(to) && !pipe(from));
	pid = fork();
	must(pid >= 0);
	if (!pid)
		child(to[0], from[1]);
	end_open(&e, &mine);
	must(read(from[0], &other, sizeof(other)) == sizeof(other));
	must(!qp_to_rts(e.qp, other.qpn, &other.gid, &quick));
	must(write(to[1], &mine, sizeof(mine)) == sizeof(mine));
	must(read(from[0], &r, 1) == 1);
	must(write_to(&e, &other, 4096) == IBV_WC_SUCCESS);
	usleep(delay_us);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	status = write_to(&e, &other, 4096);
	must(!ibv_destroy_qp(e.qp) && !ibv_destroy_cq(e.cq) && !ibv_dereg_mr(e.mr));
	must(!ibv_dealloc_pd(e.pd) && !ibv_close_device(e.ctx));
	free(e.mem);
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
	return status;
}

static void fork_with_devices(void)
{
	const struct pair_opt rc = {0};
	struct pair p, q;
	int status;
	pid_t pid;

	pair_open(&p, &rc);
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		pair_open(&q, &rc); /* while the parent's objects are still in its memory */
		status = !post_write(&q, 1, 0, 64, q.s[1].mr->rkey) &&
			 wait_wc(q.s[0].cq).status == IBV_WC_SUCCESS;
		pair_close(&q);
		_exit(status ? 0 : 1);
	}
	must(!post_write(&p, 1, 0, 64, p.s[1].mr->rkey));
	check("the parent's QP works next to a child", wait_wc(p.s[0].cq).status == IBV_WC_SUCCESS);
	waitpid(pid, &status, 0);
	check("a forked child has a device of its own", WIFEXITED(status) && !WEXITSTATUS(status));
	must(!post_write(&p, 2, 0, 64, p.s[1].mr->rkey));
	check("and takes nothing along when it ends", wait_wc(p.s[0].cq).status == IBV_WC_SUCCESS);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	int i, good = 0, rounds = argc > 1 ? atoi(argv[1]) : 20;

	signal(SIGPIPE, SIG_IGN);
	fork_with_devices();
	for (i = 0; i < rounds; i++)
		good += kill_once(i * 137 % 2000) == IBV_WC_RETRY_EXC_ERR;
	check("a killed peer means retries exceeded, every time", good == rounds);
	return failures ? 1 : 0;
}
