/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef RNICE_JSON_H
#define RNICE_JSON_H

#include <stddef.h>

/*
 * Print the string at @text, of @size bytes at most, with quotes to stdout. Whatever the bytes are,
 * the result is valid JSON in ASCII; bytes above 127 are taken as Latin-1.
 */
void json_string(const char *text, size_t size);

#endif
