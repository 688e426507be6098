/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What nullverbs.c has beyond the verbs API. Its two devices:
 *
 * "null0"  post_send remembers the last signaled WR, poll_cq hands it back: a handful of
 *          instructions and no lock, so that next to nothing hides the cost of a layer above.
 *          One thread only.
 * "null1"  a queue of completions per CQ behind a spin lock, queue-full errors, completion events:
 *          what a layer that defers, cuts and polls from a second thread needs.
 */
#ifndef RNICE_NULLVERBS_H
#define RNICE_NULLVERBS_H

#include <infiniband/verbs.h>

/* Work requests that reached the "NIC" through this QP of null1 so far. */
uint64_t nullverbs_posted(struct ibv_qp *qp);

#endif
