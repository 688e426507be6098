/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one sink for messages of the preloaded library: stderr, one line each, errno untouched.
 *
 * It never allocates, never takes a lock and goes quiet after RNICE_LOG_CAP lines, because it runs
 * inside other people's programs. On the data path, only what fails calls it.
 */
#ifndef RNICE_LOG_H
#define RNICE_LOG_H

#include "config/config.h"

#define RNICE_LOG_CAP 64

void rnice_log_set_level(enum rnice_log_level level);
__attribute__((format(printf, 2, 3), cold)) void rnice_log(enum rnice_log_level level,
							   const char *fmt, ...);

#define log_error(...) rnice_log(RNICE_LOG_ERROR, __VA_ARGS__)
#define log_warn(...) rnice_log(RNICE_LOG_WARN, __VA_ARGS__)
#define log_info(...) rnice_log(RNICE_LOG_INFO, __VA_ARGS__)
#define log_debug(...) rnice_log(RNICE_LOG_DEBUG, __VA_ARGS__)

#endif
