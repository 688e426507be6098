/* SPDX-License-Identifier: BSD-2-Clause */
/* --help, printed from the table of settings and the descriptions of the subcommands. */
#include <stdio.h>
#include <string.h>

#include "telemetry/command.h"

#define LINE_WIDTH 80
#define TEXT_INDENT 8

/* The length of the longest start of @text that fits in @width and ends at a blank or the end. */
static size_t fitting(const char *text, size_t width)
{
	size_t len = strlen(text), fit;

	if (len <= width)
		return len;
	for (fit = width; fit > 0 && text[fit] != ' '; fit--)
		;
	return fit ? fit : strcspn(text, " ");
}

void help_paragraph(int indent, const char *text)
{
	while (*text) {
		size_t len = fitting(text, (size_t)(LINE_WIDTH - indent));

		printf("%*s%.*s\n", indent, "", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
}

/* Help, unit and default of @s, under the line that names it. */
static void print_setting(const struct rnice_setting *s)
{
	const char *unit = rnice_setting_unit(s);

	help_paragraph(TEXT_INDENT, s->help);
	if (*unit)
		printf("%*sUnit: %s.\n", TEXT_INDENT, "", unit);
	printf("%*sDefault: %s", TEXT_INDENT, "", s->dflt);
	if (s->static_dflt)
		printf(" (%s under policy static)", s->static_dflt);
	printf(".\n");
}

static void print_setting_option(const struct rnice_setting *s)
{
	char option[RNICE_SETTING_TEXT], values[RNICE_SETTING_TEXT];

	rnice_setting_option(s, option, sizeof(option));
	rnice_setting_values(s, values, sizeof(values));
	if (s->letter)
		printf("  -%c, --%s=%s\n", s->letter, option, values);
	else
		printf("  --%s=%s\n", option, values);
	print_setting(s);
}

static void print_own_options(const struct own_option *own)
{
	for (; own->name; own++) {
		printf("  --%s%s%s\n", own->name, own->argument ? "=" : "",
		       own->argument ? own->argument : "");
		help_paragraph(TEXT_INDENT, own->help);
	}
}

void help_command(const struct command *cmd)
{
	printf("Usage: rnice %s [OPTION]...%s%s\n\n", cmd->name, cmd->operands ? " " : "",
	       cmd->operands ? cmd->operands : "");
	help_paragraph(0, cmd->summary);
	printf("\nOptions:\n");
	print_own_options(cmd->own);
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		if (!cmd->setting || strcmp(cmd->setting, rnice_settings[i].name) == 0)
			print_setting_option(&rnice_settings[i]);
	printf("  -h, --help\n");
	if (cmd->notes) {
		putchar('\n');
		help_paragraph(0, cmd->notes);
	}
}

void help_settings(void)
{
	char values[RNICE_SETTING_TEXT];

	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		rnice_setting_values(&rnice_settings[i], values, sizeof(values));
		printf("  %s=%s\n", rnice_settings[i].name, values);
		print_setting(&rnice_settings[i]);
	}
}
