/* SPDX-License-Identifier: BSD-2-Clause */
#include "config/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define MAX_SCALE UINT64_C(1000000000000000000)

/* @digits / @scale; @scale is a power of ten, MAX_SCALE at most. */
struct decimal {
	uint64_t digits, scale;
	bool overflow;
};

char rnice_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool rnice_same_word(const char *a, const char *b)
{
	while (*a && rnice_lower(*a) == rnice_lower(*b)) {
		a++;
		b++;
	}
	return rnice_lower(*a) == rnice_lower(*b);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* False: no room for another digit. */
static bool push_digit(struct decimal *d, char c)
{
	uint64_t v = (uint64_t)(c - '0');

	if (d->digits > (UINT64_MAX - v) / 10)
		return false;
	d->digits = d->digits * 10 + v;
	return true;
}

/* Read "12" or "12.5"; the first character behind it, or NULL if @s starts with no such number. */
static const char *parse_decimal(const char *s, struct decimal *d)
{
	*d = (struct decimal){.scale = 1};
	if (!is_digit(*s))
		return NULL;
	for (; is_digit(*s); s++)
		d->overflow |= !push_digit(d, *s);
	if (*s != '.')
		return s;
	if (!is_digit(*++s))
		return NULL;
	while (is_digit(*s) && d->scale < MAX_SCALE && push_digit(d, *s)) {
		d->scale *= 10;
		s++;
	}
	while (is_digit(*s)) /* these places weigh too little to matter */
		s++;
	return s;
}

/* @d * @unit / @per, rounded down, at most UINT64_MAX. @unit < 2^60, @per <= 8. */
static uint64_t scale_decimal(const struct decimal *d, uint64_t unit, unsigned per)
{
	unsigned __int128 v;

	if (d->overflow)
		return UINT64_MAX;
	v = (unsigned __int128)d->digits * unit / ((unsigned __int128)d->scale * per);
	return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

/* 1 for k, 2 for m, 3 for g, 4 for t; 0 if @c is no prefix. */
static unsigned prefix_power(char c)
{
	static const char prefixes[] = "kmgt";
	const char *p = c ? strchr(prefixes, rnice_lower(c)) : NULL;

	return p ? (unsigned)(p - prefixes) + 1 : 0;
}

static uint64_t power(uint64_t base, unsigned exponent)
{
	uint64_t v = 1;

	while (exponent--)
		v *= base;
	return v;
}

bool rnice_parse_count(const char *text, uint64_t *out)
{
	struct decimal d;
	const char *end = parse_decimal(text, &d);

	if (!end || *end || d.scale != 1)
		return false;
	*out = scale_decimal(&d, 1, 1);
	return true;
}

bool rnice_parse_bytes(const char *text, uint64_t *out)
{
	struct decimal d;
	const char *end = parse_decimal(text, &d);
	unsigned exponent;

	if (!end)
		return false;
	exponent = prefix_power(*end);
	if (exponent)
		end++;
	if (*end)
		return false;
	*out = scale_decimal(&d, power(1024, exponent), 1);
	return true;
}

/* The unit @s in bits per second; 0: not a unit of bandwidth. */
static uint64_t rate_unit(const char *s)
{
	unsigned exponent = prefix_power(*s);
	uint64_t base = 1000;

	if (exponent)
		s++;
	if (exponent && rnice_lower(*s) == 'i') {
		base = 1024;
		s++;
	}
	if (rnice_same_word(s, "bit"))
		return power(base, exponent);
	if (strcmp(s, "B/s") == 0)
		return power(base, exponent) * 8;
	return 0;
}

bool rnice_parse_rate(const char *text, uint64_t *out)
{
	struct decimal d;
	const char *end = parse_decimal(text, &d);
	uint64_t unit = end ? rate_unit(end) : 0;

	if (!unit)
		return false;
	*out = scale_decimal(&d, unit, 8);
	return true;
}

void rnice_format_bytes(uint64_t value, char *out, size_t len)
{
	static const char *const suffixes[] = {"", "k", "m", "g", "t"};
	unsigned i = 0;

	while (value && value % 1024 == 0 && i + 1 < ARRAY_SIZE(suffixes)) {
		value /= 1024;
		i++;
	}
	snprintf(out, len, "%" PRIu64 "%s", value, suffixes[i]);
}

void rnice_format_rate(uint64_t value, char *out, size_t len)
{
	static const char *const units[] = {"bit", "kbit", "mbit", "gbit", "tbit"};
	uint64_t bits = value > UINT64_MAX / 8 ? UINT64_MAX : value * 8;
	unsigned i = 0, places = 3;
	uint64_t unit = 1, part;

	/* The largest unit that needs three decimals at most. */
	while (i + 1 < ARRAY_SIZE(units) && bits >= unit * 1000 && bits % unit == 0) {
		unit *= 1000;
		i++;
	}
	part = bits % unit * 1000 / unit;
	if (!part) {
		snprintf(out, len, "%" PRIu64 "%s", bits / unit, units[i]);
		return;
	}
	for (; part % 10 == 0; part /= 10)
		places--;
	snprintf(out, len, "%" PRIu64 ".%0*" PRIu64 "%s", bits / unit, (int)places, part, units[i]);
}
