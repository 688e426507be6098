/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that post to QPs of their own as fast as libmlx5 lets them, on the emulated ConnectX.
 *
 *	contention_probe THREADS ROUNDS		prints messages per second, all threads together
 *
 * Between the QPs of two threads eleven idle ones are made, from the fifth on, so that libmlx5 by
 * itself puts all of them on one doorbell register.
 *
 * The NIC takes no part: the QPs are in SQD, where libmlx5 fills queues and rings doorbells and the
 * emulated NIC does nothing about it. A full queue is emptied by a RESET, which is not timed.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 16
#define DEPTH 4096
#define DRIVER_PRIVATE 4
#define DRIVER_SHARED 12

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static pthread_barrier_t barrier;
static long rounds;

static void die(const char *what)
{
	fprintf(stderr, "contention_probe: %s\n", what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

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
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp)
		die("cannot create a QP");
	return qp;
}

static void move(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	if (ibv_modify_qp(qp, attr, mask | IBV_QP_STATE))
		die("cannot modify a QP");
}

/* An empty queue that the NIC does not look at. */
static void empty(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.port_num = 1,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qp->qp_num,
				   .max_dest_rd_atomic = 1,
				   .max_rd_atomic = 1,
				   .timeout = 14,
				   .min_rnr_timer = 12,
				   .ah_attr = {.is_global = 1, .port_num = 1}};

	if (ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid))
		die("no GID");
	move(qp, &attr, IBV_QPS_RESET, 0);
	move(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	move(qp, &attr, IBV_QPS_RTR,
	     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	move(qp, &attr, IBV_QPS_RTS,
	     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC);
	move(qp, &attr, IBV_QPS_SQD, 0);
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
		empty(h->qp);
		h->ready = now();
		pthread_barrier_wait(&barrier);
		fill(h->qp);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			timed += now() - round_begin();
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	cq = pd ? ibv_create_cq(ctx, 16, NULL, NULL, 0) : NULL;
	if (!cq)
		die("no device");
}

int main(int argc, char **argv)
{
	threads = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	if (threads < 1 || threads > MAX_THREADS)
		die("usage: contention_probe THREADS(1..16) ROUNDS");
	rounds = strtol(argv[2], NULL, 10);
	open_device();
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
