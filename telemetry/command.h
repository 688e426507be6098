/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the subcommands of `rnice` share: their description, from which command line parsing and
 * --help follow, and the settings as options. One file per subcommand: cmd_*.c. One thread.
 */
#ifndef RNICE_COMMAND_H
#define RNICE_COMMAND_H

#include <stdint.h>

#include "config/setting.h"

enum exit_status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2, /* wrong usage, a bad value, an unknown RNICE_ name */
	STATUS_CANNOT_EXEC = 126,
	STATUS_NOT_FOUND = 127
};

/* An option that is not a setting. Tables of them end with a row without name. */
struct own_option {
	const char *name;     /* "lib", for --lib */
	const char *argument; /* what its value is called, NULL: it takes none */
	const char *help;
};

#define MAX_OWN_OPTIONS 4

struct command {
	const char *name;
	const char *operands; /* as in the usage line; NULL: none are taken */
	const char *summary;
	const char *notes; /* a last paragraph of --help, or NULL */
	const struct own_option *own;
	const char *setting; /* the only setting it has as an option; NULL: all */
	int (*run)(int argc, char *const argv[]); /* argv[0] is the name; returns the exit status */
};

extern const struct command cmd_run, cmd_stat, cmd_doctor, cmd_config, cmd_man;

struct cmdline {
	int first;			  /* index in argv of the first operand */
	const char *own[MAX_OWN_OPTIONS]; /* by row of the table: value, "" without, NULL unused */
	bool given[RNICE_SETTING_COUNT];  /* settings that were given as options */
};

#define GO_ON (-1)

/*
 * Parse the options of @cmd. Settings are checked and go into the environment of this process.
 * GO_ON, or the exit status to return at once: --help was served, or an error was told.
 */
int cmdline_parse(const struct command *cmd, int argc, char *const argv[], struct cmdline *line);

/* The settings in force, with @line's. The number of problems; each was told on stderr. */
int cmdline_config(const struct command *cmd, const struct cmdline *line, struct rnice_config *cfg);

/* One line on stderr: "rnice stat: ...". */
__attribute__((format(printf, 2, 3))) void complain(const struct command *cmd, const char *fmt,
						    ...);

/* --help of one command, of the settings for all of them, and one of its paragraphs; to stdout. */
void help_command(const struct command *cmd);
void help_settings(void);
void help_paragraph(int indent, const char *text);

#endif
