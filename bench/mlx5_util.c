/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/mlx5_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void die(const char *what)
{
	fprintf(stderr, "probe: %s\n", what);
	exit(1);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct device open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct device d = {0};

	d.ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	d.pd = d.ctx ? ibv_alloc_pd(d.ctx) : NULL;
	if (!d.pd)
		die("no device");
	return d;
}

static void move(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	if (ibv_modify_qp(qp, attr, mask | IBV_QP_STATE))
		die("cannot modify a QP");
}

void connect_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qp->qp_num,
				   .max_dest_rd_atomic = 1,
				   .max_rd_atomic = 1,
				   .timeout = 14,
				   .min_rnr_timer = 12,
				   .ah_attr = {.is_global = 1, .port_num = 1}};

	if (ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid))
		die("no GID");
	move(qp, &attr, IBV_QPS_RESET, 0);
	move(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	move(qp, &attr, IBV_QPS_RTR,
	     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	move(qp, &attr, IBV_QPS_RTS,
	     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect_unseen(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {0};

	connect_qp(qp);
	move(qp, &attr, IBV_QPS_SQD, 0);
}
