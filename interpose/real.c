/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/real.h"

#include "interpose/dl.h"
#include "interpose/elf.h"

struct real rnice_real_table;
_Atomic int rnice_real_ready;

/* PABI names that rdma-core has had since v34; a newer one is simply not wrapped by that name. */
static void *lookup_open_device(void)
{
	static const char *const nodes[] = {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57",
					    "IBVERBS_PRIVATE_59", "IBVERBS_PRIVATE_64",
					    "IBVERBS_PRIVATE_65"};
	unsigned int i;
	void *f = NULL;

	for (i = 0; !f && i < sizeof(nodes) / sizeof(nodes[0]); i++)
		f = elf_behind("verbs_open_device", nodes[i]);
	return f;
}

/*
 * May run in several threads at once: all of them store the same values. The flag is set only when
 * the library was found, so that a program that loads libibverbs later gets another try.
 */
void rnice_real_resolve(void)
{
#define X(name, version, ret, params) \
	rnice_real_table.name = (__typeof__(rnice_real_table.name))elf_behind(#name, version);
	RNICE_REAL_FUNCTIONS(X)
#undef X
	rnice_real_table.verbs_open_device = lookup_open_device();
	if (!rnice_real_table.ibv_open_device)
		return;
	dl_pin((const void *)rnice_real_table.ibv_open_device);
	atomic_store_explicit(&rnice_real_ready, 1, memory_order_release); /* R1 */
}
