/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers with units, to and from text, by hand: strtod() would follow the program's locale.
 *
 * Parsers take the whole of @text or nothing: false leaves *@out alone. No sign, no blanks, no
 * exponent. A value too large for *@out becomes UINT64_MAX, so that a range check refuses it.
 * Fractions of the smallest unit are dropped.
 */
#ifndef RNICE_UNITS_H
#define RNICE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool rnice_parse_count(const char *text, uint64_t *out); /* whole numbers only */

/* Bytes, with binary suffixes in either case: 4096, 64k, 1.5m, 2G, 1t. */
bool rnice_parse_bytes(const char *text, uint64_t *out);

/*
 * Bandwidth into bytes per second: 800kbit, 1.5gbit, 1gibit, 10MB/s, 1GiB/s. Units are those of
 * tc(8), except that "bps" (bytes there, bits elsewhere) and a bare number are refused, and that
 * bytes are written B/s, with a capital.
 */
bool rnice_parse_rate(const char *text, uint64_t *out);

/* The shortest of these texts that the parser above reads back as @value: "64k", "1.5gbit". */
void rnice_format_bytes(uint64_t value, char *out, size_t len);
void rnice_format_rate(uint64_t value, char *out, size_t len);

/* ASCII only, whatever the locale. */
char rnice_lower(char c);
bool rnice_same_word(const char *a, const char *b); /* equal but for case */

#endif
