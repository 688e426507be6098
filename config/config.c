/* SPDX-License-Identifier: BSD-2-Clause */
#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/setting.h"

#define PREFIX "RNICE_"
#define SHOWN 40 /* characters of a user's text that a message repeats */

/* @text fit for one line of a message: printable, and not longer than SHOWN. @out is returned. */
static const char *shown(const char *text, char out[SHOWN + sizeof("...")])
{
	size_t i;

	for (i = 0; i < SHOWN && text[i]; i++)
		out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	snprintf(out + i, sizeof("..."), "%s", text[i] ? "..." : "");
	return out;
}

static size_t row_of(const struct rnice_setting *s)
{
	return (size_t)(s - rnice_settings);
}

void rnice_config_init(struct rnice_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	for (size_t i = 0; i < RNICE_SETTING_COUNT; i++)
		/* A default name depends on who opens it, and when: it stays "" here. */
		if (rnice_settings[i].type != RNICE_TYPE_NAME)
			rnice_setting_parse(&rnice_settings[i], rnice_settings[i].dflt, cfg);
}

/* "\"12q\" is not auto|1..1g (bytes)": the legal values come from the row. */
static void explain_value(const struct rnice_setting *s, const char *value, char *err, size_t len)
{
	char values[RNICE_SETTING_TEXT], text[SHOWN + sizeof("...")];
	const char *unit = rnice_setting_unit(s);

	rnice_setting_values(s, values, sizeof(values));
	snprintf(err, len, "\"%s\" is not %s%s%s%s", shown(value, text), values, *unit ? " (" : "",
		 unit, *unit ? ")" : "");
}

static int set_row(struct rnice_config *cfg, const struct rnice_setting *s, const char *value,
		   enum rnice_source source, char *err, size_t errlen)
{
	if (!rnice_setting_parse(s, value, cfg)) {
		explain_value(s, value, err, errlen);
		return EINVAL;
	}
	cfg->source[row_of(s)] = (uint8_t)source;
	return 0;
}

int rnice_config_set(struct rnice_config *cfg, const char *name, const char *value,
		     enum rnice_source source, char *err, size_t errlen)
{
	const struct rnice_setting *s = rnice_setting_find(name);

	if (s)
		return set_row(cfg, s, value, source, err, errlen);
	snprintf(err, errlen, "no such setting; the nearest is %s",
		 rnice_setting_nearest(name)->name);
	return ENOENT;
}

void rnice_config_finish(struct rnice_config *cfg)
{
	if (cfg->policy != RNICE_POLICY_STATIC)
		return;
	for (size_t i = 0; i < RNICE_SETTING_COUNT; i++) {
		const struct rnice_setting *s = &rnice_settings[i];

		if (s->static_dflt && rnice_setting_number(s, cfg) == 0)
			rnice_setting_parse(s, s->static_dflt, cfg);
	}
}

/* What rnice_config_load() needs while it walks the environment. */
struct loader {
	struct rnice_config *cfg;
	void (*report)(void *arg, const char *line);
	void *arg;
	bool seen[RNICE_SETTING_COUNT];
	int problems;
};

__attribute__((format(printf, 2, 3))) static void problem(struct loader *l, const char *fmt, ...)
{
	char line[2 * RNICE_CONFIG_LINE];
	va_list args;

	l->problems++;
	if (!l->report)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	l->report(l->arg, line);
}

static void load_value(struct loader *l, const struct rnice_setting *s, const char *value)
{
	char err[RNICE_CONFIG_LINE];
	bool *seen = &l->seen[row_of(s)];

	if (*seen)
		problem(l, "%s: given more than once; the first counts", s->name);
	else if (*value && set_row(l->cfg, s, value, RNICE_FROM_ENVIRONMENT, err, sizeof(err)))
		problem(l, "%s: %s; the default is %s", s->name, err, s->dflt);
	*seen = true;
}

static void load_unknown(struct loader *l, const char *name)
{
	char text[SHOWN + sizeof("...")];

	problem(l, "%s: no such setting; the nearest is %s", shown(name, text),
		rnice_setting_nearest(name)->name);
}

/* @entry: "NAME=value". Whatever has no '=' is passed over, as getenv() does. */
static void load_entry(struct loader *l, const char *entry)
{
	const char *equals = strchr(entry, '=');
	const struct rnice_setting *s;
	char name[SHOWN + 2]; /* one more than is shown, so that a cut one shows as such */
	size_t len;

	if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || !equals)
		return;
	len = (size_t)(equals - entry);
	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, entry, len);
	name[len] = '\0';

	s = rnice_setting_find(name);
	if (s)
		load_value(l, s, equals + 1);
	else
		load_unknown(l, name);
}

int rnice_config_load(struct rnice_config *cfg, char *const *env,
		      void (*report)(void *arg, const char *line), void *arg)
{
	struct loader l = {.cfg = cfg, .report = report, .arg = arg};

	rnice_config_init(cfg);
	for (; env && *env; env++)
		load_entry(&l, *env);
	rnice_config_finish(cfg);
	return l.problems;
}
