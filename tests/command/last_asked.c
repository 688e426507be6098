/* SPDX-License-Identifier: BSD-2-Clause */
/* last_asked SEGMENT: when anybody asked for bytes last, in ns, as the stamps in it tell. */
#include <inttypes.h>
#include <stdio.h>

#include "scheduler/proc.h"

int main(int argc, char **argv)
{
	uint64_t last = 0, asked;
	struct rnice_segment *seg;
	char why[160];

	if (argc != 2 || rnice_segment_open(argv[1], false, &seg, why, sizeof(why)))
		return 1;
	for (unsigned s = 0; s < RNICE_MAX_PROCS; s++)
		for (unsigned d = 0; d < RNICE_MAX_DEVICES; d++) {
			asked = load_relaxed(&seg->shm->slot[s].flow[d].asked);
			last = asked > last ? asked : last;
		}
	printf("%" PRIu64 "\n", last);
	rnice_segment_close(seg);
	return 0;
}
