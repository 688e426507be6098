/* SPDX-License-Identifier: BSD-2-Clause */
/* The `rnice` command: picks the subcommand. */
#include <stdio.h>
#include <string.h>

#include "config/version.h"
#include "telemetry/command.h"

/* cmd_man serves the build and is not for users: --help passes over it. */
static const struct command *const commands[] = {&cmd_run, &cmd_stat, &cmd_doctor, &cmd_config,
						 &cmd_man};

static int help(void)
{
	printf("Usage: rnice COMMAND [OPTION]...\n\n"
	       "nice(1) for RDMA NICs: keeps the latency of some programs low while others use\n"
	       "the bandwidth that is left.\n\nCommands:\n");
	for (size_t i = 0; commands[i] != &cmd_man; i++)
		printf("  %-8s%s\n", commands[i]->name, commands[i]->summary);
	printf("\nSettings, from the environment or as options of rnice run:\n");
	help_settings();
	printf("\nrnice COMMAND --help and the pages rnice(1) and librnice(7) tell more.\n");
	return STATUS_OK;
}

static int version(void)
{
	printf("rnice %s\n", RNICE_VERSION);
	return STATUS_OK;
}

static int dispatch(int argc, char *const argv[])
{
	if (argc > 2 && strcmp(argv[1], "help") == 0) {
		char *const what[] = {argv[0], argv[2], (char[]){"--help"}, NULL};

		return dispatch(3, what);
	}
	if (argc < 2) {
		fprintf(stderr, "rnice: no command given; see rnice --help\n");
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0)
		return help();
	if (strcmp(argv[1], "--version") == 0)
		return version();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(argc - 1, argv + 1);
	fprintf(stderr, "rnice: %s: no such command; see rnice --help\n", argv[1]);
	return STATUS_USAGE;
}

int main(int argc, char *argv[])
{
	int status = dispatch(argc, argv);

	if (fclose(stdout) && status == STATUS_OK) { /* a full disk must not look like success */
		perror("rnice: standard output");
		return STATUS_FAILED;
	}
	return status;
}
