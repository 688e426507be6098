/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/provider.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static const struct provider providers[] = {
	{
		.name = "mlx5",
		.purges_cq = true,
		.invalid = ENOMEM,
		.wr_invalid = ENOMEM,
		.wr_full = ENOMEM,
		.wr_mark = 1u << 28,
		.flush_vendor_err = 0xf9,
	},
	{
		.name = "mlx4",
		.purges_cq = true,
		.invalid = ENOMEM,
		.wr_invalid = ENOMEM,
		.wr_full = ENOMEM,
	},
	{
		.name = "rxe",
		.invalid = EINVAL,
		.checks_atomics = true,
		.wr_invalid = ENOSPC,
		.wr_full = ENOSPC,
		.wr_list_unsafe = true,
		.breaks_next_poll = true,
	},
	{
		.name = "siw",
		.invalid = EINVAL,
		.checks_atomics = true,
		.wr_invalid = EINVAL,
		.wr_full = ENOMEM,
	},
};

static const struct provider others = {
	.name = "",
	.purges_cq = true,
	.invalid = EINVAL,
	.checks_atomics = true,
	.wr_invalid = EINVAL,
	.wr_full = ENOMEM,
};

static const struct provider *named(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (!strncmp(name, providers[i].name, strlen(providers[i].name)))
			return &providers[i];
	return NULL;
}

/* NULL: not in a library that is named after a provider. */
static const struct provider *by_library(const struct ibv_context *ibv)
{
	const char *base;
	Dl_info info;

	if (!dladdr((const void *)ibv->ops.poll_cq, &info))
		return NULL;
	base = strrchr(info.dli_fname, '/');
	base = base ? base + 1 : info.dli_fname;
	return strncmp(base, "lib", 3) ? NULL : named(base + 3);
}

const struct provider *provider_of(const struct ibv_context *ibv)
{
	const struct provider *p = by_library(ibv);

	if (!p)
		p = named(ibv->device->name);
	return p ? p : &others;
}
