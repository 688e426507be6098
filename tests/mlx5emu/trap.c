/* SPDX-License-Identifier: BSD-2-Clause */
#include "emu.h"

int trap_install(void)
{
	errno = ENOSYS;
	return -1;
}
