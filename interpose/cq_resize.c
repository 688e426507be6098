/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_resize_cq(): the soft queue and the room for hidden completions change with the real CQ. */
#include "interpose/shim.h"

#include <errno.h>

#define SETTLE_NS 2000000

/*
 * cq->lock held. How many completions the CQ would hold natively: a QP cannot post anew before its
 * completions are polled, but here it can when they are in the soft queue.
 */
static uint32_t held_natively(const struct cq *cq)
{
	uint32_t at, sends = 0, recvs = 0;
	const struct ibv_wc *wc;

	for (at = cq->head; at != cq->tail; at++) {
		wc = &cq->ring[at & cq->mask];
		if (wc->status == IBV_WC_SUCCESS && (wc->opcode & IBV_WC_RECV)) /* else undefined */
			recvs++;
		else
			sends++;
	}
	return recvs + (sends < cq->reserved ? sends : cq->reserved);
}

/*
 * cq->lock held. Are there more completions than @cqe? A NIC that is told of a new size counts what
 * it has done by then. It need not be told when the size differs only in what we added: then it
 * gets as much time as the command would have taken.
 */
static bool holds_more(struct cq *cq, int cqe)
{
	bool shrinks = cqe < cq->asked && load_relaxed(&cq->users);
	uint64_t end = now_ns() + (shrinks ? SETTLE_NS : 0);
	const struct timespec pause = {.tv_nsec = SETTLE_NS / 20};

	for (;;) {
		cq_drain_all(cq);
		if (held_natively(cq) > (uint32_t)cqe)
			return true;
		if (now_ns() >= end)
			return false;
		nanosleep(&pause, NULL);
	}
}

/* cq->lock held. Places that chunks may hold are never taken back. */
static int resize_managed(struct cq *cq, int cqe)
{
	int spare = cq_spare(cq, cqe), before = load_relaxed(&cq->spare), err;

	if (cqe < 1 || holds_more(cq, cqe))
		return EINVAL;
	if (spare < before)
		spare = before;
	err = cq_ring_resize(cq, (uint32_t)cqe + RNICE_POLL_BATCH + cq->reserved);
	if (!err)
		err = real()->ibv_resize_cq(cq->ibv, cqe + spare);
	if (err)
		return err;
	cq->asked = cqe;
	add_relaxed(&cq->room, spare - before);
	store_relaxed(&cq->spare, spare);
	return 0;
}

EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct cq *cq = cq_of(ibv);
	int err;

	if (!cq || !cq->managed)
		return real()->ibv_resize_cq(ibv, cqe);
	pthread_mutex_lock(&cq->lock);
	err = resize_managed(cq, cqe);
	pthread_mutex_unlock(&cq->lock);
	return err;
}
