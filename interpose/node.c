/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many CPUs a device has near it. libnuma is loaded when somebody asks: the library is
 * preloaded into programs without RDMA, too, and those shall not pay for reading the host's
 * topology.
 */
#include "interpose/node.h"

#include <dlfcn.h>
#include <numa.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

struct libnuma {
	int (*available)(void);
	int (*max_node)(void);
	struct bitmask *(*allocate_cpumask)(void);
	int (*node_to_cpus)(int, struct bitmask *);
	unsigned int (*weight)(const struct bitmask *);
	void (*release)(struct bitmask *);
};

static bool find(void *lib, const char *name, const char *version, void *out)
{
	return (*(void **)out = dlvsym(lib, name, version)) != NULL;
}

/* Stays loaded: its functions are called once per context. */
static bool load(struct libnuma *n)
{
	void *lib = dlopen("libnuma.so.1", RTLD_LAZY | RTLD_LOCAL);

	return lib && find(lib, "numa_available", "libnuma_1.1", &n->available) &&
	       find(lib, "numa_max_node", "libnuma_1.1", &n->max_node) &&
	       find(lib, "numa_allocate_cpumask", "libnuma_1.2", &n->allocate_cpumask) &&
	       find(lib, "numa_node_to_cpus", "libnuma_1.2", &n->node_to_cpus) &&
	       find(lib, "numa_bitmask_weight", "libnuma_1.2", &n->weight) &&
	       find(lib, "numa_bitmask_free", "libnuma_1.2", &n->release);
}

/* 0: not known. */
static uint32_t cpus_of(int node)
{
	struct bitmask *cpus;
	struct libnuma n;
	uint32_t count;

	if (!load(&n) || n.available() < 0 || node > n.max_node())
		return 0;
	cpus = n.allocate_cpumask();
	if (!cpus)
		return 0;
	count = n.node_to_cpus(node, cpus) ? 0 : n.weight(cpus);
	n.release(cpus);
	return count;
}

static int node_of(const struct ibv_device *device)
{
	char path[IBV_SYSFS_PATH_MAX + 32];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/device/numa_node", device->ibdev_path);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

uint32_t node_cpus_near(const struct ibv_device *device)
{
	int node = node_of(device);
	uint32_t n = node >= 0 ? cpus_of(node) : 0;
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (n)
		return n;
	return online > 0 ? (uint32_t)online : 1;
}
