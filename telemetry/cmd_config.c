/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice config: every setting, its value in force, its default, and where the value came from. */
#include <stdio.h>
#include <string.h>

#include "telemetry/command.h"
#include "telemetry/json.h"

enum { OWN_JSON };
static const struct own_option own_options[] = {
	[OWN_JSON] = {"json", NULL, "Print JSON instead of a table."},
	{0},
};

static const char *const source_words[] = {
	[RNICE_FROM_DEFAULT] = "default",
	[RNICE_FROM_ENVIRONMENT] = "environment",
	[RNICE_FROM_OPTION] = "option",
};

static void print_table(const struct rnice_config *cfg)
{
	char value[RNICE_SETTING_TEXT];

	printf("%-18s%-15s%-15s%s\n", "SETTING", "VALUE", "DEFAULT", "FROM");
	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		const struct rnice_setting *s = &rnice_settings[i];

		rnice_setting_format(s, cfg, value, sizeof(value));
		printf("%-18s%-14s %-14s %s\n", s->name, value, s->dflt,
		       source_words[cfg->source[i]]);
	}
}

static void json_member(const char *name, const char *value, const char *end)
{
	printf("\"%s\": ", name);
	json_string(value, strlen(value));
	fputs(end, stdout);
}

static void print_json_setting(const struct rnice_setting *s, const struct rnice_config *cfg)
{
	char text[RNICE_SETTING_TEXT];

	printf("    {");
	json_member("name", s->name, ", ");
	rnice_setting_option(s, text, sizeof(text));
	json_member("option", text, ", ");
	rnice_setting_format(s, cfg, text, sizeof(text));
	json_member("value", text, ", ");
	json_member("default", s->dflt, ", ");
	json_member("from", source_words[cfg->source[s - rnice_settings]], ",\n     ");
	rnice_setting_values(s, text, sizeof(text));
	json_member("values", text, ", ");
	json_member("unit", rnice_setting_unit(s), ",\n     ");
	json_member("help", s->help, "}");
}

static void print_json(const struct rnice_config *cfg)
{
	printf("{\n  \"version\": 1,\n  \"settings\": [\n");
	for (int i = 0; i < RNICE_SETTING_COUNT; i++) {
		print_json_setting(&rnice_settings[i], cfg);
		printf(i + 1 < RNICE_SETTING_COUNT ? ",\n" : "\n");
	}
	printf("  ]\n}\n");
}

static int run(int argc, char *const argv[])
{
	struct rnice_config cfg;
	struct cmdline line;
	int problems, status = cmdline_parse(&cmd_config, argc, argv, &line);

	if (status != GO_ON)
		return status;
	problems = cmdline_config(&cmd_config, &line, &cfg);
	if (line.own[OWN_JSON])
		print_json(&cfg);
	else
		print_table(&cfg);
	return problems ? STATUS_USAGE : STATUS_OK;
}

const struct command cmd_config = {
	.name = "config",
	.summary = "Show every setting, its value in force, and where that came from.",
	.notes = "Given the options of rnice run, shows what a program would run with. Exit status:"
		 " 0; 2 wrong usage or a bad setting, and the table shows the default for it.",
	.own = own_options,
	.run = run,
};
