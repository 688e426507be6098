/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rnice man TEMPLATE: fill the template of a manual page from the table of settings, to stdout.
 *
 * For the build, not for users. A template is mdoc(7) source in which one line stands for a list:
 *	@OPTIONS@	the settings as command line options
 *	@ENVIRONMENT@	the settings as environment variables
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/command.h"

/* Plain text as mdoc source: each sentence starts a line, so that the formatter spaces it. */
static void print_sentences(const char *text)
{
	for (; *text; text++)
		if (text[0] == ' ' && text[-1] == '.')
			putchar('\n');
		else
			putchar(*text);
	putchar('\n');
}

static void print_details(const struct rnice_setting *s)
{
	print_sentences(s->help);
	if (*rnice_setting_unit(s))
		printf("Unit: %s.\n", rnice_setting_unit(s));
	printf("Default:\n.Cm %s", s->dflt);
	if (s->static_dflt)
		printf("\n.Pq under policy static: Cm %s", s->static_dflt);
	printf(" .\n");
}

static void print_option(const struct rnice_setting *s)
{
	char option[RNICE_SETTING_TEXT], values[RNICE_SETTING_TEXT];

	rnice_setting_option(s, option, sizeof(option));
	rnice_setting_values(s, values, sizeof(values));
	printf(".It ");
	if (s->letter)
		printf("Fl %c Ar %s , ", s->letter, values);
	printf("Fl -%s Ns = Ns Ar %s\n", option, values);
	print_details(s);
}

static void print_variable(const struct rnice_setting *s)
{
	char values[RNICE_SETTING_TEXT];

	rnice_setting_values(s, values, sizeof(values));
	printf(".It Ev %s Ns = Ns Ar %s\n", s->name, values);
	print_details(s);
}

static void print_list(void (*print)(const struct rnice_setting *s))
{
	printf(".Bl -tag -width Ds\n");
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		print(&rnice_settings[i]);
	printf(".El\n");
}

static void fill(FILE *template)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, template) >= 0)
		if (strcmp(line, "@OPTIONS@\n") == 0)
			print_list(print_option);
		else if (strcmp(line, "@ENVIRONMENT@\n") == 0)
			print_list(print_variable);
		else
			fputs(line, stdout);
	free(line);
}

static int run(int argc, char *const argv[])
{
	FILE *template;

	if (argc != 2) {
		complain(&cmd_man, "usage: rnice man TEMPLATE");
		return STATUS_USAGE;
	}
	template = fopen(argv[1], "r");
	if (!template) {
		complain(&cmd_man, "%s: %m", argv[1]);
		return STATUS_FAILED;
	}
	fill(template);
	fclose(template);
	return STATUS_OK;
}

const struct command cmd_man = {.name = "man", .run = run};
