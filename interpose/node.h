/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef RNICE_NODE_H
#define RNICE_NODE_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* CPUs of the device's NUMA node; of the host when nobody knows the node. At least 1. Slow. */
__attribute__((visibility("hidden"))) uint32_t node_cpus_near(const struct ibv_device *device);

#endif
