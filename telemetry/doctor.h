/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice doctor: cmd_doctor.c prints what the examinations find. */
#ifndef RNICE_DOCTOR_H
#define RNICE_DOCTOR_H

#include "config/config.h"

struct rnice_segment;

/* One line each. A problem is something to act on; it makes the exit status 1. */
__attribute__((format(printf, 1, 2))) void doctor_fine(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void doctor_problem(const char *fmt, ...);

/* doctor_host.c: limits, /dev/shm, RDMA devices. */
void doctor_host(void);
/* doctor_segment.c: the segment and the processes in it. */
void doctor_segment(const struct rnice_config *cfg);

#endif
