/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork: programs that fork around their RDMA work. The parent's work must go on, whatever the child
 * does with its copy of the process; and a child that opens the device anew must work.
 */
#include "verbs_util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 16
#define LEN (128u << 10)

static const char *self;

/* Post @n WRITEs, tell them apart by wr_id from @from on. */
static void post_many(struct vu_pair *p, uint64_t from, unsigned int n)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	vu_fill(p->mem[0].p, p->mem[0].len, from + 1);
	for (uint64_t i = from; i < from + n; i++) {
		size_t off = (i % DEPTH) * LEN;

		sge = (struct ibv_sge){(uintptr_t)p->mem[0].p + off, LEN, p->mem[0].mr->lkey};
		wr = vu_wr(IBV_WR_RDMA_WRITE, &sge, i, IBV_SEND_SIGNALED);
		vu_wr_remote(&wr, p->mem[1].p + off, p->mem[1].mr->rkey);
		vu_must_post(p->qp[0].qp, &wr);
	}
}

static void finish_many(struct vu_pair *p, uint64_t from, unsigned int n)
{
	for (uint64_t i = from; i < from + n; i++)
		vu_cq_expect_ok(&p->scq[0], i, "a WRITE");
	vu_check(!memcmp(p->mem[0].p, p->mem[1].p, p->mem[0].len), "wrong bytes");
}

static void work(struct vu_pair *p, unsigned int batches)
{
	for (uint64_t i = 0; i < batches; i++) {
		post_many(p, i * DEPTH, DEPTH);
		finish_many(p, i * DEPTH, DEPTH);
	}
}

static void open_pair(struct vu_pair *p)
{
	static const struct vu_pair_spec spec = {
		.mem = DEPTH * LEN, .send_wr = DEPTH, .recv_wr = 1};

	vu_pair_open(p, &spec);
}

/* A program of its own. */
static void own_work(void)
{
	struct vu_pair p;

	open_pair(&p);
	work(&p, 4);
	vu_pair_close(&p);
}

/* ---- children ---- */

static void child_leaves_at_once(void)
{
	_exit(0);
}

static void child_exits(void)
{
	exit(0); /* runs destructors in a copy of the parent */
}

static void child_works(void)
{
	own_work();
	exit(0);
}

/* As a program may that wants to keep nothing of its parent's open. */
static struct ibv_context *inherited[2];

static void child_closes(void)
{
	for (int i = 0; i < 2; i++)
		vu_check(!ibv_close_device(inherited[i]), "close_device: %s", strerror(errno));
	own_work();
	exit(0);
}

static void child_execs(void)
{
	execl(self, self, "--work", "--dev", vu.dev, "--peer-dev", vu.peer_dev, NULL);
	_exit(9);
}

static void child_forks(void)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		child_works();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		_exit(8);
	exit(0);
}

static pid_t start_child(void (*child)(void))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	vu_check(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		vu_deadline(60);
		vu.log = NULL;
		child();
		_exit(7);
	}
	return pid;
}

static void end_child(pid_t pid, const char *what)
{
	int status;

	vu_at(what);
	vu_check(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	vu_check(WIFEXITED(status) && !WEXITSTATUS(status), "%s: the child's status is %#x", what,
		 status);
}

/* ---- cases ---- */

static void inherit(const struct vu_pair *p)
{
	for (int i = 0; i < 2; i++)
		inherited[i] = p->dev[i].ctx;
}

/* The child comes while the parent's QP is idle, and lives while it works. */
static void idle_parent(const char *what, void (*child)(void))
{
	struct vu_pair p;
	pid_t pid;

	vu_at(what);
	open_pair(&p);
	inherit(&p);
	work(&p, 2);
	pid = start_child(child);
	work(&p, 4);
	end_child(pid, what);
	work(&p, 2);
	vu_pair_close(&p);
	vu_log("%s: ok\n", what);
}

/* The child comes in the middle of the parent's work. */
static void busy_parent(const char *what, void (*child)(void))
{
	struct vu_pair p;
	pid_t pid;

	vu_at(what);
	open_pair(&p);
	inherit(&p);
	post_many(&p, 0, DEPTH);
	pid = start_child(child);
	finish_many(&p, 0, DEPTH);
	end_child(pid, what);
	work(&p, 2);
	vu_pair_close(&p);
	vu_log("%s: ok\n", what);
}

static void no_device_yet(void)
{
	pid_t pid = start_child(child_works);

	own_work();
	end_child(pid, "fork before any device was open");
}

static void spawned(void)
{
	struct vu_pair p;

	vu_at("system()");
	open_pair(&p);
	post_many(&p, 0, DEPTH);
	vu_check(!system("exit 0"), "system() failed");
	finish_many(&p, 0, DEPTH);
	vu_pair_close(&p);
}

int main(int argc, char **argv)
{
	bool init = false, work_only = false;
	const struct vu_opt opts[] = {
		{"fork-init", VU_OPT_FLAG, &init, "call ibv_fork_init first"},
		{"work", VU_OPT_FLAG, &work_only, "only do what the exec'ed child does"},
	};

	self = "/proc/self/exe";
	vu_parse(argc, argv, "fork", "forking around RDMA work", opts, VU_ARRAY(opts));
	if (work_only) {
		own_work();
		return 0;
	}
	if (init)
		vu_check(!ibv_fork_init(), "ibv_fork_init");
	no_device_yet();
	idle_parent("child _exits", child_leaves_at_once);
	idle_parent("child exits", child_exits);
	idle_parent("child works", child_works);
	idle_parent("child execs", child_execs);
	idle_parent("child closes", child_closes);
	busy_parent("child _exits, busy parent", child_leaves_at_once);
	busy_parent("child exits, busy parent", child_exits);
	busy_parent("child works, busy parent", child_works);
	busy_parent("child execs, busy parent", child_execs);
	busy_parent("child closes, busy parent", child_closes);
	busy_parent("grandchild works, busy parent", child_forks);
	spawned();
	return vu_pass("13 cases%s", init ? " with ibv_fork_init" : "");
}
