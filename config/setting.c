/* SPDX-License-Identifier: BSD-2-Clause */
/* One row of the table: from text to its field and back. */
#include "config/setting.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/units.h"

#define NAME_PREFIX_LEN (sizeof("RNICE_") - 1)

/* Enum fields are stored through this type; gcc and clang agree unless -fshort-enums. */
_Static_assert(sizeof(enum rnice_class) == sizeof(unsigned), "enums are as wide as unsigned");

static void *field(const struct rnice_setting *s, struct rnice_config *cfg)
{
	return (char *)cfg + s->offset;
}

static const void *const_field(const struct rnice_setting *s, const struct rnice_config *cfg)
{
	return (const char *)cfg + s->offset;
}

uint64_t rnice_setting_number(const struct rnice_setting *s, const struct rnice_config *cfg)
{
	uint64_t number;

	memcpy(&number, const_field(s, cfg), sizeof(number));
	return number;
}

/* The place of @value in the NULL-terminated @words, or -1. */
static int word_index(const char *const *words, const char *value)
{
	for (int i = 0; words[i]; i++)
		if (rnice_same_word(words[i], value))
			return i;
	return -1;
}

static bool parse_word(const struct rnice_setting *s, const char *value, void *out)
{
	int i = word_index(s->words, value);

	if (i < 0)
		return false;
	if (s->type == RNICE_TYPE_SWITCH)
		*(bool *)out = i;
	else
		memcpy(out, &i, sizeof(i));
	return true;
}

static bool parse_in_unit(enum rnice_unit unit, const char *value, uint64_t *out)
{
	switch (unit) {
	case RNICE_UNIT_BYTES:
		return rnice_parse_bytes(value, out);
	case RNICE_UNIT_RATE:
		return rnice_parse_rate(value, out);
	default:
		return rnice_parse_count(value, out);
	}
}

static bool parse_number(const struct rnice_setting *s, const char *value, void *out)
{
	uint64_t number;

	if (s->zero && rnice_same_word(s->zero, value))
		number = 0;
	else if (!parse_in_unit(s->unit, value, &number) || number < s->min || number > s->max)
		return false;
	memcpy(out, &number, sizeof(number));
	return true;
}

static bool is_file_name(const char *s)
{
	return *s && !strchr(s, '/') && strlen(s) <= NAME_MAX && strcmp(s, ".") != 0 &&
	       strcmp(s, "..") != 0;
}

/* A name is repeated in messages and tables of one line each. */
static bool has_control(const char *s)
{
	while (*s && (unsigned char)*s >= ' ' && *s != 0x7f)
		s++;
	return *s != '\0';
}

static bool parse_name(const struct rnice_setting *s, const char *value, char *out)
{
	size_t len = strlen(value);

	if (len >= s->size || has_control(value) ||
	    !(is_file_name(value) || (value[0] == '/' && value[1])))
		return false;
	memcpy(out, value, len + 1);
	return true;
}

bool rnice_setting_parse(const struct rnice_setting *s, const char *value, struct rnice_config *cfg)
{
	switch (s->type) {
	case RNICE_TYPE_WORD:
	case RNICE_TYPE_SWITCH:
		return parse_word(s, value, field(s, cfg));
	case RNICE_TYPE_NUMBER:
		return parse_number(s, value, field(s, cfg));
	case RNICE_TYPE_NAME:
		return parse_name(s, value, field(s, cfg));
	}
	return false;
}

static void format_in_unit(enum rnice_unit unit, uint64_t number, char *out, size_t len)
{
	switch (unit) {
	case RNICE_UNIT_BYTES:
		rnice_format_bytes(number, out, len);
		break;
	case RNICE_UNIT_RATE:
		rnice_format_rate(number, out, len);
		break;
	default:
		snprintf(out, len, "%llu", (unsigned long long)number);
	}
}

static void format_number(const struct rnice_setting *s, uint64_t number, char *out, size_t len)
{
	if (s->zero && number == 0)
		snprintf(out, len, "%s", s->zero);
	else
		format_in_unit(s->unit, number, out, len);
}

void rnice_setting_format(const struct rnice_setting *s, const struct rnice_config *cfg, char *out,
			  size_t len)
{
	const void *value = const_field(s, cfg);
	unsigned word;

	switch (s->type) {
	case RNICE_TYPE_WORD:
		memcpy(&word, value, sizeof(word));
		snprintf(out, len, "%s", s->words[word]);
		break;
	case RNICE_TYPE_SWITCH:
		snprintf(out, len, "%s", s->words[*(const bool *)value]);
		break;
	case RNICE_TYPE_NUMBER:
		format_number(s, rnice_setting_number(s, cfg), out, len);
		break;
	case RNICE_TYPE_NAME:
		if (*(const char *)value)
			snprintf(out, len, "%s", (const char *)value);
		else
			snprintf(out, len, "rnice-%u", (unsigned)geteuid());
		break;
	}
}

static void join_words(const char *const *words, char *out, size_t len)
{
	size_t used = 0;

	out[0] = '\0';
	for (; *words && used < len; words++)
		used += (size_t)snprintf(out + used, len - used, "%s%s", used ? "|" : "", *words);
}

void rnice_setting_values(const struct rnice_setting *s, char *out, size_t len)
{
	char min[32], max[32];

	if (s->words) {
		join_words(s->words, out, len);
		return;
	}
	if (s->type == RNICE_TYPE_NAME) {
		snprintf(out, len, "name|/path");
		return;
	}
	format_in_unit(s->unit, s->min, min, sizeof(min));
	format_in_unit(s->unit, s->max, max, sizeof(max));
	snprintf(out, len, "%s%s%s..%s", s->zero ? s->zero : "", s->zero ? "|" : "", min, max);
}

const char *rnice_setting_unit(const struct rnice_setting *s)
{
	static const char *const units[] = {
		[RNICE_UNIT_NONE] = "",
		[RNICE_UNIT_USEC] = "microseconds",
		[RNICE_UNIT_BYTES] = "bytes; k, m, g, t are powers of 1024",
		[RNICE_UNIT_RATE] = "per second, as in 100mbit, 1.5gbit, 10MB/s",
		[RNICE_UNIT_REGISTERS] = "registers",
	};

	return units[s->unit];
}

void rnice_setting_option(const struct rnice_setting *s, char *out, size_t len)
{
	snprintf(out, len, "%s", s->name + NAME_PREFIX_LEN);
	for (; *out; out++)
		*out = *out == '_' ? '-' : rnice_lower(*out);
}

const struct rnice_setting *rnice_setting_find(const char *name)
{
	for (size_t i = 0; i < RNICE_SETTING_COUNT; i++)
		if (strcmp(rnice_settings[i].name, name) == 0)
			return &rnice_settings[i];
	return NULL;
}

#define MAX_COMPARED 64 /* characters of a mistyped name; the known ones are shorter */

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned least = a < b ? a : b;

	return least < c ? least : c;
}

/* Levenshtein's: insertions, deletions, substitutions; in either case. Keeps one row at a time. */
static unsigned edit_distance(const char *a, const char *b)
{
	unsigned row[MAX_COMPARED + 1], diagonal, above;
	size_t len = strnlen(b, MAX_COMPARED);

	for (unsigned j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned i = 1; *a; a++, i++) {
		diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= len; j++) {
			above = row[j];
			row[j] = min3(above + 1, row[j - 1] + 1,
				      diagonal + (rnice_lower(*a) != rnice_lower(b[j - 1])));
			diagonal = above;
		}
	}
	return row[len];
}

const struct rnice_setting *rnice_setting_nearest(const char *name)
{
	const struct rnice_setting *best = &rnice_settings[0];
	unsigned distance, least = edit_distance(best->name, name);

	for (size_t i = 1; i < RNICE_SETTING_COUNT; i++) {
		distance = edit_distance(rnice_settings[i].name, name);
		if (distance < least) {
			least = distance;
			best = &rnice_settings[i];
		}
	}
	return best;
}
