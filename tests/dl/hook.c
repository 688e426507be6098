/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another preloaded library that wraps dlsym() and dlvsym(), as good ones do: the real functions by
 * dlvsym(RTLD_NEXT), and a jump to them. It says at the end how many look-ups it saw.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLD_GLIBC "GLIBC_2.2.5"
#else
#define OLD_GLIBC "GLIBC_2.17"
#endif

static void *(*real_dlsym)(void *, const char *);
static unsigned int seen;

__attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name)
{
	if (!real_dlsym)
		real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLD_GLIBC);
	seen++;
	return real_dlsym(handle, name);
}

/* Constructors run in an order that nobody chose: a look-up must work in each. */
static __attribute__((constructor)) void early(void)
{
	if (!dlsym(RTLD_DEFAULT, "getpid"))
		_exit(97);
}

static __attribute__((destructor)) void report(void)
{
	if (getenv("HOOK_REPORT"))
		printf("hook saw %s\n", seen > 3 ? "many" : "none");
}
