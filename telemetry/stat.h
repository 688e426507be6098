/* SPDX-License-Identifier: BSD-2-Clause */
/* The two faces of `rnice stat`: cmd_stat.c opens the segment, these print it to stdout. */
#ifndef RNICE_STAT_H
#define RNICE_STAT_H

#include "scheduler/segment.h"

void stat_print_text(const struct rnice_segment *seg, const char *name);
void stat_print_json(const struct rnice_segment *seg, const char *name);

/* More than one thread was seen to ring it. */
static inline bool stat_is_shared(const struct rnice_register_stat *r)
{
	return r->threads > 1;
}

/* The word for a kind of uncontrolled object: "qp_type". @kind < RNICE_UNC_KINDS. */
const char *stat_uncontrolled_word(unsigned kind);

/* A gauge ("now") of @counters: what a torn read or garbage made negative counts as 0. */
uint64_t stat_gauge(const uint64_t *counters, enum rnice_counter which);

#endif
