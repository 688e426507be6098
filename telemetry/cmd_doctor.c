/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice doctor: is there anything about this host or its rnice processes that somebody should know?
 */
#include <stdarg.h>
#include <stdio.h>

#include "telemetry/command.h"
#include "telemetry/doctor.h"

static unsigned problems;

static const struct own_option own_options[] = {{0}};

static void finding(const char *word, const char *fmt, va_list args)
{
	printf("%-8s", word);
	vprintf(fmt, args);
	putchar('\n');
}

void doctor_fine(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	finding("ok", fmt, args);
	va_end(args);
}

void doctor_problem(const char *fmt, ...)
{
	va_list args;

	problems++;
	va_start(args, fmt);
	finding("problem", fmt, args);
	va_end(args);
}

static int run(int argc, char *const argv[])
{
	struct rnice_config cfg;
	struct cmdline line;
	int status = cmdline_parse(&cmd_doctor, argc, argv, &line);

	if (status != GO_ON)
		return status;
	if (cmdline_config(&cmd_doctor, &line, &cfg))
		doctor_problem("settings: see above; programs run with the defaults for those");
	else
		doctor_fine("settings");
	doctor_host();
	doctor_segment(&cfg);
	return problems ? STATUS_FAILED : STATUS_OK;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.summary = "Examine this host and its rnice processes, and explain what is wrong.",
	.notes = "Exit status: 0 nothing to act on; 1 there is a problem; 2 wrong usage.",
	.own = own_options,
	.setting = "RNICE_SEGMENT",
	.run = run,
};
