/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One of two libraries with a function frob(), which says who it is and asks the next one, found by
 * dlsym(RTLD_NEXT): only with the right return address does that find what comes behind itself.
 */
#include <dlfcn.h>
#include <stdio.h>

void frob(void);
int ibv_open_device(int x);

/* A namesake without the version of verbs. */
int ibv_open_device(int x)
{
	return x + 1;
}

void frob(void)
{
	void (*next)(void) = (void (*)(void))dlsym(RTLD_NEXT, "frob");
	void *versioned = dlvsym(RTLD_NEXT, "getpid", "NO_SUCH_VERSION");

	printf("frob of " WHO ", %s next, %s versioned\n", next ? "a" : "no",
	       versioned ? "a" : "no");
	dlerror();
	if (next)
		next();
}
