/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Look-ups of every kind and what dlerror() says after each, on standard output: the same natively
 * and under rnice, but for the functions that are wrapped. lookups CHAIN-LIBRARY [LIBIBVERBS-COPY]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define VERBS "libibverbs.so.1"

/* The file that the address lies in, without its directory; rnice's wrappers count as verbs. */
static const char *where(void *p)
{
	const char *slash;
	Dl_info info;

	if (!p)
		return "nowhere";
	if (!dladdr(p, &info))
		return "somewhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static void tell(const char *what, void *p)
{
	const char *error = dlerror();

	printf("%s: %s, %s", what, where(p), error ? error : "no error");
	printf(", then %s\n", dlerror() ? "an error" : "none");
}

static void plain(void *libc)
{
	tell("dlsym default", dlsym(RTLD_DEFAULT, "getpid"));
	tell("dlsym default, absent", dlsym(RTLD_DEFAULT, "no_such_symbol"));
	tell("dlsym next", dlsym(RTLD_NEXT, "getpid"));
	tell("dlsym next, absent", dlsym(RTLD_NEXT, "no_such_symbol"));
	tell("dlsym handle", dlsym(libc, "getpid"));
	tell("dlsym handle, absent", dlsym(libc, "no_such_symbol"));
	tell("dlsym handle, absent verb", dlsym(libc, "ibv_open_device"));
	tell("dlvsym handle, wrong version", dlvsym(libc, "getpid", "GLIBC_9"));
	tell("dlvsym handle, absent verb", dlvsym(libc, "ibv_open_device", "IBVERBS_1.1"));
	dlsym(libc, "no_such_symbol");
	tell("success after an unread error", dlsym(libc, "getpid"));
	dlsym(libc, "no_such_symbol");
	tell("a verb after an unread error", dlsym(libc, "ibv_open_device"));
}

static void verbs(void *handle)
{
	void *old = dlvsym(handle, "ibv_open_device", "IBVERBS_1.0");

	tell("wrapped verb", dlsym(handle, "ibv_open_device"));
	tell("wrapped verb by version", dlvsym(handle, "ibv_open_device", "IBVERBS_1.1"));
	dlsym(handle, "no_such_symbol");
	tell("wrapped verb after an unread error", dlsym(handle, "ibv_create_qp"));
	tell("old version of a wrapped verb", old);
	tell("another verb", dlsym(handle, "ibv_wc_status_str"));
	tell("absent verb", dlsym(handle, "ibv_no_such_verb"));
	tell("absent version", dlvsym(handle, "ibv_open_device", "IBVERBS_9.9"));
	printf("old and new are %s\n",
	       old == dlvsym(handle, "ibv_open_device", "IBVERBS_1.1") ? "one" : "two");
}

int main(int argc, char **argv)
{
	void *chain = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void *handle = dlopen(VERBS, RTLD_NOW);
	void (*frob)(void);

	if (!chain || !handle)
		return 1;
	plain(dlopen("libc.so.6", RTLD_NOW));
	verbs(handle);
	tell("a namesake in another library", dlsym(chain, "ibv_open_device"));
	frob = (void (*)(void))dlsym(RTLD_DEFAULT, "frob");
	if (frob)
		frob();
	if (argc > 2) {
		handle = dlopen(argv[2], RTLD_NOW);
		printf("a copy of libibverbs: %s\n", where(dlsym(handle, "ibv_open_device")));
	}
	return 0;
}
