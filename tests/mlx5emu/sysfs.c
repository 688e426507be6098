/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the libraries read under SYSFS_PATH to find devices, and the address plan behind it.
 *
 * Files: libibverbs/init.c, device.c and cmd_device.c of rdma-core read them. Each device is a
 * "host" of its own: 10.77.0.(i + 1), one port. GID table as a ConnectX has it on RoCE: link
 * local v1 and v2, then IPv4-mapped v1 and v2.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emu.h"

uint64_t dev_guid(uint32_t dev)
{
	return 0x0002c90300ab0000ull + ((uint64_t)dev << 8);
}

uint32_t dev_lid(uint32_t dev)
{
	return dev + 1;
}

uint32_t dev_ipv4(uint32_t dev)
{
	return htonl(0x0a4d0001 + dev); /* 10.77.0.1, ... */
}

void dev_gid(uint32_t dev, uint32_t index, uint8_t gid[16])
{
	uint64_t guid = htobe64(dev_guid(dev));
	uint32_t ip = dev_ipv4(dev);

	memset(gid, 0, 16);
	if (index < 2) {
		gid[0] = 0xfe;
		gid[1] = 0x80;
		memcpy(gid + 8, &guid, 8);
	} else if (index < EMU_GIDS) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &ip, 4);
	}
}

int dev_of_gid(const uint8_t gid[16])
{
	uint8_t mine[16];
	uint32_t d, i;

	for (d = 0; d < self.seg->cfg.ndevs; d++)
		for (i = 0; i < EMU_GIDS; i += 2) {
			dev_gid(d, i, mine);
			if (!memcmp(mine, gid, 16))
				return d;
		}
	return -1;
}

struct tree {
	const char *root;
	char base[128];
	int err;
};

/* Make every folder on the way to `path`. */
static void make_folders(const char *path)
{
	char copy[PATH_MAX], *p;

	snprintf(copy, sizeof(copy), "%s", path);
	for (p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		mkdir(copy, 0700);
		*p = '/';
	}
}

__attribute__((format(printf, 3, 4))) static void put(struct tree *t, const char *name,
						      const char *fmt, ...)
{
	char path[PATH_MAX], text[256];
	va_list ap;
	int fd, n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s/%s", t->root, t->base, name);
	make_folders(path);
	fd = real_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || real_write(fd, text, n) != n)
		t->err = t->err ? t->err : errno;
	if (fd >= 0)
		real_close(fd);
}

static void put_gids(struct tree *t, uint32_t dev, uint32_t link)
{
	static const char *const types[] = {"IB/RoCE v1", "RoCE v2"};
	char name[64], text[64];
	uint8_t g[16];
	uint32_t i, j;
	int n;

	for (i = 0; i < EMU_GIDS; i++) {
		dev_gid(dev, i, g);
		for (j = 0, n = 0; j < 16; j += 2)
			n += snprintf(text + n, sizeof(text) - n, "%s%02x%02x", j ? ":" : "", g[j],
				      g[j + 1]);
		snprintf(name, sizeof(name), "ports/1/gids/%u", i);
		put(t, name, "%s\n", text);
		snprintf(name, sizeof(name), "ports/1/gid_attrs/types/%u", i);
		if (link == IBV_LINK_LAYER_ETHERNET)
			put(t, name, "%s\n", types[i & 1]);
	}
}

static void put_device(struct tree *t, uint32_t dev, uint32_t link)
{
	const char *name = getenv("MLX5EMU_NAME");
	uint64_t guid = dev_guid(dev);
	/* 15b3:101d is a ConnectX-6 Dx: the provider is chosen by this string. */
	const char *alias = "pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc00i00\n";

	if (!name)
		name = "mlx5_";
	snprintf(t->base, sizeof(t->base), "class/infiniband_verbs/uverbs%u", dev);
	put(t, "ibdev", "%s%u\n", name, dev);
	put(t, "abi_version", "1\n");
	put(t, "dev", "%u:%u\n", EMU_MAJOR, EMU_MINOR + dev);
	put(t, "device/modalias", "%s", alias);
	snprintf(t->base, sizeof(t->base), "class/infiniband/%s%u", name, dev);
	put(t, "node_type", "1: CA\n");
	put(t, "node_guid", "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48),
	    (unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
	    (unsigned)guid & 0xffff);
	put(t, "fw_ver", "22.0.0\n");
	put(t, "hca_type", "MT4125\n");
	put(t, "board_id", "MLX5EMU0000001\n");
	put(t, "device/modalias", "%s", alias);
	put(t, "device/numa_node", "-1\n");
	put(t, "device/vendor", "0x15b3\n");
	put(t, "device/device", "0x101d\n");
	put(t, "ports/1/state", "4: ACTIVE\n");
	put(t, "ports/1/link_layer", "%s\n",
	    link == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	put(t, "ports/1/pkeys/0", "0xffff\n");
	put_gids(t, dev, link);
}

int sysfs_generate(const char *dir, uint32_t ndevs, uint32_t link)
{
	char root[PATH_MAX];
	struct tree t = {.root = root};
	uint32_t i;

	snprintf(root, sizeof(root), "%s/sysfs", dir);
	snprintf(t.base, sizeof(t.base), "class/infiniband_verbs");
	put(&t, "abi_version", "6\n");
	snprintf(t.base, sizeof(t.base), "class/misc/rdma_cm");
	put(&t, "abi_version", "4\n");
	put(&t, "dev", "%u:%u\n", EMU_CM_MAJOR, EMU_CM_MINOR);
	for (i = 0; i < ndevs; i++)
		put_device(&t, i, link);
	return t.err;
}
