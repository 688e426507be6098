/* SPDX-License-Identifier: BSD-2-Clause */
/* A shared object that is linked with libibverbs, as a Python extension or a plug-in is. */
#include "transfer.h"

__attribute__((visibility("default"))) void module_transfer(void);

void module_transfer(void)
{
	static const struct calls linked = {
#define X(ret, name, params) .name = name,
		CALLS(X)
#undef X
	};

	transfer(&linked);
}
