/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files programs read events from: completion channels, async files, rdma_cm channels.
 *
 * A queue is a list of events and an eventfd in semaphore mode that counts them, so poll, select,
 * epoll and O_NONBLOCK behave. read() on it is hooked and hands out the next event. Like the
 * kernel, a destroyed object takes its unread events with it, and what was read is counted in the
 * object: ibv_destroy_cq() waits until the program has acknowledged exactly that many.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "emu.h"

struct entry {
	struct entry *next;
	enum emu_src src;
	uint32_t slot;
	uint32_t len;
	unsigned char data[];
};

struct emu_queue {
	pthread_mutex_t lock;
	int fd;
	uint32_t users; /* the fd, and objects that still point here */
	struct entry *head, **tail;
};

struct emu_queue *queue_new(void)
{
	struct emu_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (q->fd < 0) {
		free(q);
		return NULL;
	}
	pthread_mutex_init(&q->lock, NULL);
	q->tail = &q->head;
	fd_set_kind(q->fd, FD_QUEUE, q);
	return q;
}

int queue_fd(const struct emu_queue *q)
{
	return q->fd;
}

void queue_put(struct emu_queue *q, const void *ev, uint32_t len, enum emu_src src, uint32_t slot)
{
	struct entry *e = malloc(sizeof(*e) + len);
	uint64_t one = 1;

	if (!e)
		return;
	*e = (struct entry){.src = src, .slot = slot, .len = len};
	memcpy(e->data, ev, len);
	pthread_mutex_lock(&q->lock);
	*q->tail = e;
	q->tail = &e->next;
	if (q->fd >= 0 && real_write(q->fd, &one, sizeof(one)) < 0)
		emu_log("eventfd: %d", errno);
	pthread_mutex_unlock(&q->lock);
}

/* The counts that the destroy calls report, see ib_uverbs_destroy_*_resp. */
static void count_read(const struct entry *e)
{
	switch (e->src) {
	case SRC_CQ_COMP:
		self.seg->cq[e->slot].comp_read++;
		break;
	case SRC_CQ_ASYNC:
		self.seg->cq[e->slot].async_read++;
		break;
	case SRC_QP_ASYNC:
		self.seg->qp[e->slot].async_read++;
		break;
	case SRC_SRQ_ASYNC:
		self.seg->srq[e->slot].async_read++;
		break;
	default:
		break;
	}
}

static struct entry *pop(struct emu_queue *q)
{
	struct entry *e = q->head;

	if (!e)
		return NULL;
	q->head = e->next;
	if (!q->head)
		q->tail = &q->head;
	return e;
}

ssize_t queue_read(struct emu_queue *q, void *buf, size_t n)
{
	struct entry *e;
	uint64_t one;
	size_t len;

	do {
		if (real_read(q->fd, &one, sizeof(one)) != sizeof(one))
			return -1; /* EAGAIN, EINTR, ... as the program's fd flags say */
		pthread_mutex_lock(&q->lock);
		e = pop(q);
		if (e)
			count_read(e);
		pthread_mutex_unlock(&q->lock);
	} while (!e); /* purged between the two steps */
	len = e->len < n ? e->len : n;
	memcpy(buf, e->data, len);
	free(e);
	return len;
}

void queue_purge(struct emu_queue *q, enum emu_src src, uint32_t slot)
{
	struct entry **p, *e;
	uint64_t one;
	uint32_t gone = 0;

	pthread_mutex_lock(&q->lock);
	for (p = &q->head; (e = *p);) {
		if (e->src == src && e->slot == slot) {
			*p = e->next;
			free(e);
			gone++;
		} else {
			p = &e->next;
		}
	}
	q->tail = p;
	/* Take the tokens back without blocking; a reader that was faster just tries again. */
	while (gone-- && q->fd >= 0) {
		struct iovec iov = {.iov_base = &one, .iov_len = sizeof(one)};

		if (preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) < 0)
			break;
	}
	pthread_mutex_unlock(&q->lock);
}

/* Unread events of one source go to another queue, in order. */
void queue_move(struct emu_queue *from, struct emu_queue *to, enum emu_src src, uint32_t slot)
{
	struct entry *e, *kept = NULL, **tail = &kept;

	pthread_mutex_lock(&from->lock);
	for (e = from->head; e; e = e->next)
		if (e->src == src && e->slot == slot) {
			struct entry *copy = malloc(sizeof(*copy) + e->len);

			if (!copy)
				break;
			memcpy(copy, e, sizeof(*e) + e->len);
			copy->next = NULL;
			*tail = copy;
			tail = &copy->next;
		}
	pthread_mutex_unlock(&from->lock);
	queue_purge(from, src, slot);
	while ((e = kept)) {
		kept = e->next;
		queue_put(to, e->data, e->len, e->src, e->slot);
		free(e);
	}
}

/* The fd is closed by the program; CQs may still point here, so the queue itself stays. */
void queue_close(struct emu_queue *q)
{
	struct entry *e;

	pthread_mutex_lock(&q->lock);
	q->fd = -1;
	while ((e = pop(q)))
		free(e);
	pthread_mutex_unlock(&q->lock);
}
