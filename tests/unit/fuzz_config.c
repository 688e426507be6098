/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: any environment leaves a valid config, and each message is one printable line.
 *
 *	clang -g -fsanitize=fuzzer,address,undefined -I. tests/unit/fuzz_config.c config/[a-z]*.c
 *
 * Input: environment entries with a NUL behind each; what follows the last NUL is one more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/setting.h"

#define MAX_ENTRIES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void check_line(void *lines, const char *line)
{
	require(*line, "a message says something");
	for (; *line; line++)
		require(*line >= ' ' && *line <= '~', "a message is printable");
	++*(int *)lines;
}

/* What is in force is legal: its own text is accepted, and means the same. */
static void check_setting(const struct rnice_setting *s, const struct rnice_config *cfg)
{
	struct rnice_config copy = *cfg;
	char text[RNICE_SETTING_TEXT];

	rnice_setting_format(s, cfg, text, sizeof(text));
	if (s->type == RNICE_TYPE_NAME && !cfg->segment[0])
		return; /* the default name is made by who opens it */
	require(rnice_setting_parse(s, text, &copy), "a value in force is legal");
	require(memcmp(&copy, cfg, sizeof(copy)) == 0, "a value in force reads back");
}

/* Point @env into @text, of @size bytes and a NUL behind them. */
static void split(char *text, size_t size, char *env[MAX_ENTRIES + 1])
{
	char *end = text + size;
	int n = 0;

	while (text <= end && n < MAX_ENTRIES) {
		env[n++] = text;
		text += strlen(text) + 1;
	}
	env[n] = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rnice_config cfg;
	char *env[MAX_ENTRIES + 1], *text = malloc(size + 1);
	int lines = 0;

	require(text, "there is memory");
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	split(text, size, env);
	require(rnice_config_load(&cfg, env, check_line, &lines) == lines, "a line per problem");
	for (int i = 0; i < RNICE_SETTING_COUNT; i++)
		check_setting(&rnice_settings[i], &cfg);
	free(text);
	return 0;
}
