/* SPDX-License-Identifier: BSD-2-Clause */
/* In what providers differ, where we answer or clean up in their place. */
#ifndef RNICE_PROVIDER_H
#define RNICE_PROVIDER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct provider {
	const char *name; /* its library is lib<name>..., its devices <name>... by default */
	bool purges_cq;	  /* removes a QP's CQEs at destroy and RESET */
	uint32_t flush_vendor_err; /* what the NIC puts into flushed completions */
	int invalid;		   /* post_send: too many SGEs or too much inline data */
	bool checks_atomics;	   /* post_send: refuses short or unaligned ones */
	bool breaks_next_poll;	   /* unlocks twice when there is no next entry */
	int wr_invalid, wr_full;   /* wr_complete: as @invalid; the queue is full */
	bool wr_list_unsafe;	   /* wr_set_sge_list gets unequal lengths wrong (librxe 44) */
	unsigned int wr_mark;	   /* a bit in wr_flags that it does not look at; or 0 */
};

/*
 * By the library that the context's functions are in, as devices are often renamed (udev makes
 * rocep1s0f0 of mlx5_0); by the device's name if another interposer has put its own there.
 */
const struct provider *provider_of(const struct ibv_context *ibv);

#pragma GCC visibility pop

#endif
