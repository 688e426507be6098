/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doorbell registers in the segment: how many of a device's the processes have reserved, and what
 * each process shows of those that its QPs ring.
 *
 * There is no ledger to repair: what is reserved is the sum over the flows of the processes, and a
 * dead process's flow is cleared with its slot.
 *
 *	call                 may run beside
 *	reserve, unreserve   all
 *	show, hide           all, on different records; show may race with itself (the last wins)
 */
#ifndef RNICE_REGISTER_H
#define RNICE_REGISTER_H

#include "scheduler/port.h"

struct shm;

/*
 * Reserve @n registers if all processes together then have at most @budget: true. Never above
 * it; two that ask for the last ones at the same time may both be refused.
 */
bool rnice_doorbells_reserve(struct rnice_port *port, uint32_t n, uint32_t budget);
void rnice_doorbells_unreserve(struct rnice_port *port, uint32_t n);
/* How many could still be reserved. */
uint32_t rnice_doorbells_left(const struct rnice_port *port, uint32_t budget);

/* The sum for device @dev; the dead count until their slots are reclaimed. */
uint32_t rnice_doorbells_reserved(const struct shm *shm, unsigned dev);

/* A record for one register, or -1 when RNICE_MAX_REGISTERS are shown already. */
int rnice_register_claim(struct rnice_port *port);
void rnice_register_release(struct rnice_port *port, int record); /* accepts -1 */
/* @r->device is ignored: it is the port's. Accepts record -1. */
void rnice_register_show(struct rnice_port *port, int record, const struct rnice_register_stat *r);

#endif
