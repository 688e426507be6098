/* SPDX-License-Identifier: BSD-2-Clause */
/* Command lines: the options of a subcommand are its own ones and those of the settings. */
#include "telemetry/command.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What getopt_long() returns for long options; short ones return their letter. */
enum { VAL_SETTING = 0x100, VAL_OWN = 0x200, VAL_HELP = 'h' };

struct parser {
	const struct command *cmd;
	struct cmdline *line;
	char names[RNICE_SETTING_COUNT][32];
	struct option longs[RNICE_SETTING_COUNT + MAX_OWN_OPTIONS + 2]; /* --help, the end */
	char shorts[2 * RNICE_SETTING_COUNT + 4];
};

void complain(const struct command *cmd, const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "rnice %s: ", cmd->name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static bool takes(const struct command *cmd, const struct rnice_setting *s)
{
	return !cmd->setting || strcmp(cmd->setting, s->name) == 0;
}

/* '+': options end at the program's name. ':': missing values are told apart from bad options. */
static void build_options(struct parser *p)
{
	struct option *o = p->longs;
	char *c = stpcpy(p->shorts, "+:h");

	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		const struct rnice_setting *s = &rnice_settings[i];

		if (!takes(p->cmd, s))
			continue;
		rnice_setting_option(s, p->names[i], sizeof(p->names[i]));
		*o++ = (struct option){p->names[i], required_argument, NULL, VAL_SETTING + i};
		if (s->letter) {
			*c++ = s->letter;
			*c++ = ':';
		}
	}
	for (int i = 0; p->cmd->own[i].name; i++) {
		const struct own_option *own = &p->cmd->own[i];

		*o++ = (struct option){own->name, own->argument ? required_argument : no_argument,
				       NULL, VAL_OWN + i};
	}
	*o = (struct option){"help", no_argument, NULL, VAL_HELP};
}

/* The row of the setting with the short option @letter; getopt_long() knew it, so there is one. */
static int row_of_letter(int letter)
{
	int i = 0;

	while (rnice_settings[i].letter != letter)
		i++;
	return i;
}

static int use_setting(struct parser *p, int row, const char *value)
{
	const struct rnice_setting *s = &rnice_settings[row];
	struct rnice_config scratch;
	char err[RNICE_CONFIG_LINE], option[RNICE_SETTING_TEXT];

	rnice_config_init(&scratch);
	if (rnice_config_set(&scratch, s->name, value, RNICE_FROM_OPTION, err, sizeof(err))) {
		rnice_setting_option(s, option, sizeof(option));
		complain(p->cmd, "--%s: %s", option, err);
		return STATUS_USAGE;
	}
	if (setenv(s->name, value, 1)) {
		complain(p->cmd, "cannot set %s: %m", s->name);
		return STATUS_FAILED;
	}
	p->line->given[row] = true;
	return GO_ON;
}

/* @val and optopt are getopt_long()'s; @text is what the user wrote. */
static int refuse(const struct parser *p, int val, const char *text)
{
	char letter[] = {'-', (char)optopt, '\0'};
	const char *why = "no such option";

	if (val == ':')
		why = "needs a value";
	else if (optopt >= VAL_SETTING)
		why = "takes no value";
	complain(p->cmd, "%s: %s; see rnice %s --help",
		 optopt > 0 && optopt < VAL_SETTING ? letter : text, why, p->cmd->name);
	return STATUS_USAGE;
}

static int use_option(struct parser *p, int val, const char *text)
{
	switch (val) {
	case VAL_HELP:
		help_command(p->cmd);
		return STATUS_OK;
	case ':':
	case '?':
		return refuse(p, val, text);
	}
	if (val >= VAL_OWN) {
		p->line->own[val - VAL_OWN] = optarg ? optarg : "";
		return GO_ON;
	}
	return use_setting(p, val >= VAL_SETTING ? val - VAL_SETTING : row_of_letter(val), optarg);
}

int cmdline_parse(const struct command *cmd, int argc, char *const argv[], struct cmdline *line)
{
	struct parser p = {.cmd = cmd, .line = line};
	int val, status;

	memset(line, 0, sizeof(*line));
	build_options(&p);
	opterr = 0;
	while ((val = getopt_long(argc, argv, p.shorts, p.longs, NULL)) != -1) {
		status = use_option(&p, val, argv[optind - 1]);
		if (status != GO_ON)
			return status;
	}
	line->first = optind;
	if (!cmd->operands && optind < argc) {
		complain(cmd, "%s: not expected; see rnice %s --help", argv[optind], cmd->name);
		return STATUS_USAGE;
	}
	return GO_ON;
}

static void tell(void *cmd, const char *text)
{
	complain(cmd, "%s", text);
}

int cmdline_config(const struct command *cmd, const struct cmdline *line, struct rnice_config *cfg)
{
	int problems = rnice_config_load(cfg, environ, tell, (void *)cmd);

	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		if (line->given[i])
			cfg->source[i] = RNICE_FROM_OPTION;
	return problems;
}
