/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the probes on the emulated ConnectX share: an own device, and QPs connected to themselves.
 * Errors end the program.
 */
#ifndef MLX5_UTIL_H
#define MLX5_UTIL_H

#include <infiniband/verbs.h>

struct device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
};

_Noreturn void die(const char *what);
double now(void); /* CLOCK_MONOTONIC, seconds */
struct device open_device(void);
/* By RESET, so empty; to RTS, connected to itself. */
void connect_qp(struct ibv_qp *qp);
/*
 * The same, and on to SQD, where libmlx5 fills queues and rings doorbells and the emulated NIC does
 * nothing about it.
 */
void connect_unseen(struct ibv_qp *qp);

#endif
