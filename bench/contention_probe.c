/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that post to QPs of their own as fast as libmlx5 lets them, on the emulated ConnectX.
 *
 *	contention_probe THREADS ROUNDS		prints messages per second, all threads together
 *
 * Between the QPs of two threads eleven idle ones are made, from the fifth on, so that libmlx5 by
 * itself puts all of them on one doorbell register.
 *
 * The NIC takes no part (connect_unseen). A full queue is emptied by a RESET, which is not timed.
 */
#include "bench/mlx5_util.h"

#include <errno.h>
#include <pthread.h>
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
static pthread_barrier_t barrier;
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
	double ready;
};

static struct hammer hammer[MAX_THREADS];
static long threads;
static double timed; /* of the thread that the barrier picks, one at a time */

/* A round begins when the last thread is ready, whenever the others get to run. */
static double round_begin(void)
{
	double last = 0;

	for (long t = 0; t < threads; t++)
		if (hammer[t].ready > last)
			last = hammer[t].ready;
	return last;
}

static void *run(void *arg)
{
	struct hammer *h = arg;

	for (long r = 0; r < rounds; r++) {
		connect_unseen(h->qp);
		h->ready = now();
		pthread_barrier_wait(&barrier);
		fill(h->qp);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			timed += now() - round_begin();
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	threads = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	if (threads < 1 || threads > MAX_THREADS)
		die("usage: contention_probe THREADS(1..16) ROUNDS");
	rounds = strtol(argv[2], NULL, 10);
	dev = open_device();
	cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0);
	if (!cq)
		die("no CQ");
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
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
	printf("%.0f\n", (double)(threads * rounds * DEPTH) / timed);
	return 0;
}
