/* SPDX-License-Identifier: BSD-2-Clause */
#include "telemetry/json.h"

#include <stdio.h>

void json_string(const char *text, size_t size)
{
	putchar('"');
	for (size_t i = 0; i < size && text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < ' ' || c > '~')
			printf("\\u%04x", c);
		else if (c == '"' || c == '\\')
			printf("\\%c", c);
		else
			putchar(c);
	}
	putchar('"');
}
