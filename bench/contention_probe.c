/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that post to QPs of their own as fast as libmlx5 lets them, on the emulated ConnectX.
 *
 *	contention_probe THREADS ROUNDS
 *
 * prints messages per second of all threads together, the median of the rounds. Thread n runs on
 * the n-th CPU, modulo their number. They wait for each other by spinning: a round takes 100 us,
 *and to be woken takes a good part of that, in which nobody contends.
 *
 * Between the QPs of two threads eleven idle ones are made, from the fifth on, so that libmlx5 by
 * itself puts all of them on one doorbell register.
 *
 * The NIC takes no part (connect_unseen). A full queue is emptied by a RESET, which is not timed.
 */
#include "bench/mlx5_util.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 16
#define DEPTH 4096
#define DRIVER_PRIVATE 4
#define DRIVER_SHARED 12

static struct device dev;
static struct ibv_cq *cq;
static long rounds;

static struct ibv_qp *make_qp(unsigned depth)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 8},
	};
	struct ibv_qp *qp = ibv_create_qp(dev.pd, &attr);

	if (!qp)
		die("cannot create a QP");
	return qp;
}

static void fill(struct ibv_qp *qp)
{
	uint64_t data = 42;
	struct ibv_sge sge = {(uintptr_t)&data, sizeof(data), 0};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_INLINE,
				 };

	for (int i = 0; i < DEPTH; i++)
		if ((errno = ibv_post_send(qp, &wr, &bad)))
			die(strerror(errno));
}

struct hammer {
	pthread_t thread;
	struct ibv_qp *qp;
	double begin, end; /* of the round */
};

static struct hammer hammer[MAX_THREADS];
static long threads;
static _Atomic long arrived;
static double *took; /* by round */

/* All threads have called it @times times. */
static void meet(long times)
{
	atomic_fetch_add(&arrived, 1);
	for (unsigned i = 1; atomic_load(&arrived) < times * threads; i++)
		if (i % 1024 == 0)
			sched_yield();
}

/* From when the first thread began until the last one was done. */
static double round_time(void)
{
	double begin = hammer[0].begin, end = hammer[0].end;

	for (long t = 1; t < threads; t++) {
		begin = hammer[t].begin < begin ? hammer[t].begin : begin;
		end = hammer[t].end > end ? hammer[t].end : end;
	}
	return end - begin;
}

static void pin(long n)
{
	cpu_set_t all, one;
	int cpu = -1;

	if (sched_getaffinity(0, sizeof(all), &all))
		die("no CPUs");
	for (n = n % CPU_COUNT(&all) + 1; n; n -= CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (pthread_setaffinity_np(pthread_self(), sizeof(one), &one))
		die("cannot be pinned");
}

static void *run(void *arg)
{
	struct hammer *h = arg;

	pin(h - hammer);
	for (long r = 0; r < rounds; r++) {
		connect_unseen(h->qp);
		meet(3 * r + 1);
		h->begin = now();
		fill(h->qp);
		h->end = now();
		meet(3 * r + 2);
		if (h == hammer)
			took[r] = round_time();
		meet(3 * r + 3);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	threads = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	if (threads < 1 || threads > MAX_THREADS)
		die("usage: contention_probe THREADS(1..16) ROUNDS");
	rounds = strtol(argv[2], NULL, 10);
	took = rounds > 0 ? calloc((size_t)rounds, sizeof(*took)) : NULL;
	if (!took)
		die("no rounds");
	dev = open_device();
	cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0);
	if (!cq)
		die("no CQ");
	for (int i = 0; i < DRIVER_PRIVATE; i++)
		make_qp(1);
	for (long t = 0; t < threads; t++) {
		hammer[t].qp = make_qp(DEPTH);
		for (int i = 1; i < DRIVER_SHARED; i++)
			make_qp(1);
	}
	for (long t = 0; t < threads; t++)
		pthread_create(&hammer[t].thread, NULL, run, &hammer[t]);
	for (long t = 0; t < threads; t++)
		pthread_join(hammer[t].thread, NULL);
	qsort(took, (size_t)rounds, sizeof(*took), by_value);
	printf("%.0f\n", (double)(threads * DEPTH) / took[rounds / 2]);
	return 0;
}
