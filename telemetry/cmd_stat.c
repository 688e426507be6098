/* SPDX-License-Identifier: BSD-2-Clause */
/* rnice stat: what the processes of this host do, read from their segment without joining it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "telemetry/command.h"
#include "telemetry/stat.h"

#define MIN_WATCH 0.1 /* seconds */
#define MAX_WATCH 86400.0

enum { OWN_JSON, OWN_WATCH };
static const struct own_option own_options[] = {
	[OWN_JSON] = {"json", NULL, "Print JSON: one object, with --watch one per reading."},
	[OWN_WATCH] = {"watch", "SECONDS",
		       "Print again every so many seconds (0.1..86400), until interrupted."},
	{0},
};

const char *stat_uncontrolled_word(unsigned kind)
{
	static const char *const words[] = {
		[RNICE_UNC_QP_TYPE] = "qp_type",     [RNICE_UNC_WR_API] = "wr_api",
		[RNICE_UNC_CQ_EX] = "cq_ex",	     [RNICE_UNC_DIRECT] = "direct",
		[RNICE_UNC_SHARED_QP] = "shared_qp",
	};
	_Static_assert(sizeof(words) / sizeof(words[0]) == RNICE_UNC_KINDS, "a word for each kind");

	return words[kind];
}

uint64_t stat_gauge(const uint64_t *counters, enum rnice_counter which)
{
	return counters[which] > INT64_MAX ? 0 : counters[which];
}

/* Every reading opens the segment anew: it may have been replaced. */
static int print_once(const struct rnice_config *cfg, bool json)
{
	char name[RNICE_SETTING_TEXT], why[128] = "";
	struct rnice_segment *seg;
	int err = rnice_segment_open(cfg->segment, false, &seg, why, sizeof(why));

	rnice_setting_format(rnice_setting_find("RNICE_SEGMENT"), cfg, name, sizeof(name));
	if (err == ENOENT) {
		complain(&cmd_stat, "no rnice process has run here (no segment %s)", name);
		return STATUS_FAILED;
	}
	if (err) {
		complain(&cmd_stat, "segment %s: %s", name, *why ? why : strerror(err));
		return STATUS_FAILED;
	}
	if (json)
		stat_print_json(seg, name);
	else
		stat_print_text(seg, name);
	rnice_segment_close(seg);
	return STATUS_OK;
}

static bool parse_seconds(const char *text, struct timespec *out)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= MIN_WATCH && seconds <= MAX_WATCH))
		return false;
	out->tv_sec = (time_t)seconds;
	out->tv_nsec = (long)((seconds - (double)out->tv_sec) * 1e9);
	return true;
}

static int print_forever(const struct rnice_config *cfg, bool json, const struct timespec *pause)
{
	bool screen = !json && isatty(STDOUT_FILENO);
	int status = STATUS_OK;

	while (status == STATUS_OK) {
		if (screen)
			printf("\033[H\033[2J"); /* home, clear: each reading replaces the last */
		status = print_once(cfg, json);
		if (!screen && !json)
			putchar('\n');
		if (fflush(stdout))
			return STATUS_FAILED;
		nanosleep(pause, NULL);
	}
	return status;
}

static int run(int argc, char *const argv[])
{
	struct timespec pause;
	struct rnice_config cfg;
	struct cmdline line;
	int status = cmdline_parse(&cmd_stat, argc, argv, &line);
	bool json = line.own[OWN_JSON];

	if (status != GO_ON)
		return status;
	if (line.own[OWN_WATCH] && !parse_seconds(line.own[OWN_WATCH], &pause)) {
		complain(&cmd_stat, "--watch: \"%s\" is not 0.1..86400 (seconds)",
			 line.own[OWN_WATCH]);
		return STATUS_USAGE;
	}
	if (cmdline_config(&cmd_stat, &line, &cfg))
		return STATUS_USAGE;
	return line.own[OWN_WATCH] ? print_forever(&cfg, json, &pause) : print_once(&cfg, json);
}

const struct command cmd_stat = {
	.name = "stat",
	.summary = "Show processes, their traffic and latency, and devices.",
	.notes = "Exit status: 0; 1 no rnice process has run here, or its segment cannot be read;"
		 " 2 wrong usage or a bad setting.",
	.own = own_options,
	.setting = "RNICE_SEGMENT",
	.run = run,
};
