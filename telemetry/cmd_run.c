/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice run: start a program with librnice.so preloaded and its settings in the environment. */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/command.h"

#define LIBRARY "librnice.so"

enum { OWN_LIB };
static const struct own_option own_options[] = {
	[OWN_LIB] = {"lib", "PATH",
		     "The " LIBRARY
		     " to preload. Default: the one beside this command, then the one"
		     " in ../lib from there, then the one the dynamic linker finds."},
	{0},
};

/* True: "@dir/@rest" exists; @out has its absolute path. */
static bool resolve(const char *dir, const char *rest, char out[PATH_MAX])
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, rest);
	return realpath(path, out) != NULL;
}

/* Where the library is when nobody says so; the plain name if it is not where it should be. */
static void find_library(char out[PATH_MAX])
{
	char dir[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	char *slash;

	if (len > 0) {
		dir[len] = '\0';
		slash = strrchr(dir, '/');
		if (slash)
			*slash = '\0';
		if (resolve(dir, LIBRARY, out) || resolve(dir, "../lib/" LIBRARY, out))
			return;
	}
	snprintf(out, PATH_MAX, "%s", LIBRARY);
}

/* The head of an ELF file up to e_machine, the same for all word lengths; zeros if it is none. */
static Elf32_Ehdr head_of(const char *path)
{
	Elf32_Ehdr head = {0};
	FILE *f = fopen(path, "re");

	if (!f)
		return head;
	if (fread(&head, offsetof(Elf32_Ehdr, e_version), 1, f) != 1 ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
		head = (Elf32_Ehdr){0};
	fclose(f);
	return head;
}

/*
 * A text, or a library of another machine: the dynamic linker would only grumble, and run the
 * program without.
 */
static bool is_library(const char *path)
{
	Elf32_Ehdr file = head_of(path), self = head_of("/proc/self/exe");

	return file.e_type == ET_DYN && file.e_machine == self.e_machine &&
	       file.e_ident[EI_CLASS] == self.e_ident[EI_CLASS];
}

static int choose_library(const char *given, char out[PATH_MAX])
{
	if (!given) {
		find_library(out);
	} else if (!realpath(given, out)) {
		complain(&cmd_run, "--lib: %s: %m", given);
		return STATUS_USAGE;
	} else if (!is_library(out)) {
		complain(&cmd_run, "--lib: %s: not a shared library of this machine", given);
		return STATUS_USAGE;
	}
	if (strpbrk(out, ": ")) {
		complain(&cmd_run, "%s: LD_PRELOAD cannot hold a path with a blank or a colon",
			 out);
		return STATUS_USAGE;
	}
	return STATUS_OK;
}

/* Put @library in front of what LD_PRELOAD holds: the first one there is the first to be asked. */
static int preload(const char *library)
{
	const char *others = getenv("LD_PRELOAD");
	bool any = others && *others;
	char *list;
	int failed;

	if (asprintf(&list, "%s%s%s", library, any ? ":" : "", any ? others : "") < 0)
		list = NULL;
	failed = !list || setenv("LD_PRELOAD", list, 1);
	free(list);
	if (!failed)
		return STATUS_OK;
	complain(&cmd_run, "cannot set LD_PRELOAD: %m");
	return STATUS_FAILED;
}

static int execute(char *const argv[])
{
	int err;

	execvp(argv[0], argv);
	err = errno;
	complain(&cmd_run, "%s: %s", argv[0], strerror(err));
	return err == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_EXEC;
}

static int run(int argc, char *const argv[])
{
	struct rnice_config cfg;
	struct cmdline line;
	char library[PATH_MAX];
	int status = cmdline_parse(&cmd_run, argc, argv, &line);

	if (status != GO_ON)
		return status;
	if (line.first == argc) {
		complain(&cmd_run, "no program given; see rnice run --help");
		return STATUS_USAGE;
	}
	if (cmdline_config(&cmd_run, &line, &cfg))
		return STATUS_USAGE;
	status = choose_library(line.own[OWN_LIB], library);
	if (status == STATUS_OK)
		status = preload(library);
	return status == STATUS_OK ? execute(argv + line.first) : status;
}

const struct command cmd_run = {
	.name = "run",
	.operands = "[--] PROGRAM [ARGUMENT]...",
	.summary = "Run a program under rnice.",
	.notes = "Settings that are not given come from the environment. Exit status: that of the"
		 " program; 2 wrong usage or a bad setting, 126 the program cannot be executed, 127"
		 " it was not found.",
	.own = own_options,
	.run = run,
};
