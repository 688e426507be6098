/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that are not linked with libibverbs and use it all the same. loader HOW [FILE]
 *
 *	nccl	dlopen, dlvsym IBVERBS_1.1, else dlsym
 *	dlsym	dlopen, dlsym by the handle
 *	global	dlopen RTLD_GLOBAL, dlsym RTLD_DEFAULT
 *	module, deepbind	FILE, linked with libibverbs, is opened RTLD_LOCAL or RTLD_DEEPBIND
 *	fork	as nccl, with a child in the middle that opens a device of its own
 *	again	as nccl, but the library is closed and opened anew between two transfers
 */
#include "transfer.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *must_open(const char *file, int flags)
{
	void *handle = dlopen(file, flags);

	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	check(handle);
	return handle;
}

static void *find(void *handle, const char *name, bool versioned)
{
	void *f = versioned ? dlvsym(handle, name, "IBVERBS_1.1") : NULL;

	if (!f)
		f = dlsym(handle, name);
	check(f);
	return f;
}

static void find_all(struct calls *v, void *handle, bool versioned)
{
#define X(ret, name, params) v->name = (__typeof__(v->name))find(handle, #name, versioned);
	CALLS(X)
#undef X
}

static void run_looked_up(void *handle, bool versioned)
{
	struct calls v;

	find_all(&v, handle, versioned);
	transfer(&v);
}

static void run_forking(void *handle)
{
	struct calls v;
	struct loop l;
	pid_t child;
	int status;

	find_all(&v, handle, true);
	loop_open(&v, &l, open_nth(&v, 0));
	loop_run(&l, 2);
	show_stat();
	child = fork();
	if (!child) {
		transfer(&v);
		_exit(0);
	}
	loop_run(&l, 2);
	check(waitpid(child, &status, 0) == child && !status);
	loop_run(&l, 2);
	show_stat();
	loop_close(&v, &l);
	check(!v.ibv_close_device(l.ctx));
}

static void run_module(const char *file, int flags)
{
	void (*run)(void) = (void (*)(void))dlsym(must_open(file, flags), "module_transfer");

	check(run);
	run();
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "", *file = argc > 2 ? argv[2] : "libibverbs.so.1";
	void *handle;

	if (!strcmp(how, "nccl")) {
		run_looked_up(must_open(file, RTLD_NOW), true);
	} else if (!strcmp(how, "dlsym")) {
		run_looked_up(must_open(file, RTLD_LAZY), false);
	} else if (!strcmp(how, "global")) {
		must_open(file, RTLD_NOW | RTLD_GLOBAL);
		run_looked_up(RTLD_DEFAULT, true);
	} else if (!strcmp(how, "fork")) {
		run_forking(must_open(file, RTLD_NOW));
	} else if (!strcmp(how, "again")) {
		handle = must_open(file, RTLD_NOW);
		run_looked_up(handle, true);
		dlclose(handle);
		run_looked_up(must_open(file, RTLD_NOW), true);
	} else if (!strcmp(how, "module")) {
		run_module(file, RTLD_NOW | RTLD_LOCAL);
	} else if (!strcmp(how, "deepbind")) {
		must_open("libibverbs.so.1", RTLD_NOW); /* for the emulator is preloaded, too */
		run_module(file, RTLD_LAZY | RTLD_DEEPBIND);
	} else {
		return 2;
	}
	puts("done");
	return 0;
}
