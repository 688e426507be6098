/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int threshold = RNICE_LOG_WARN;
static atomic_uint lines;

void rnice_log_set_level(enum rnice_log_level level)
{
	atomic_store_explicit(&threshold, level, memory_order_relaxed);
}

void rnice_log(enum rnice_log_level level, const char *fmt, ...)
{
	char buf[512];
	int saved = errno, head, len;
	unsigned int n;
	va_list ap;

	if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
		return;
	n = atomic_fetch_add_explicit(&lines, 1, memory_order_relaxed);
	if (n > RNICE_LOG_CAP)
		return;
	if (n == RNICE_LOG_CAP)
		fmt = "more messages are suppressed";

	head = snprintf(buf, sizeof(buf), "rnice[%d]: ", (int)getpid());
	va_start(ap, fmt);
	len = vsnprintf(buf + head, sizeof(buf) - (size_t)head - 1, fmt, ap);
	va_end(ap);
	if (len > (int)sizeof(buf) - head - 2)
		len = (int)sizeof(buf) - head - 2;
	if (len >= 0) {
		buf[head + len] = '\n';
		if (write(STDERR_FILENO, buf, (size_t)(head + len + 1)) < 0) {
			/* nowhere to say so */
		}
	}
	errno = saved;
}
