/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels of a managed process.
 *
 * A NIC event of a managed CQ may stand for hidden completions alone, and a completion that the
 * program can see may have been taken off the CQ long before the program looks. So events are made
 * anew: one for the first completion that becomes visible after the program armed the CQ, which is
 * what the NIC would do. The program's fd is readable if and only if there is one, which keeps even
 * a program right that polls a *blocking* fd and then calls ibv_get_cq_event().
 *
 * What the program fetched and acked is counted here; each event of the NIC is acked towards
 * libibverbs at once, so that its ibv_destroy_cq() never waits for us. Ours waits for the program.
 */
#include "interpose/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct channel *channel_of(struct ibv_comp_channel *pub)
{
	return pub ? table_get(&shim.channels, table_ptr_key(pub)) : NULL;
}

static bool epoll_add(int ep, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return !epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static void free_channel(struct channel *ch)
{
	if (ch->ep >= 0)
		close(ch->ep);
	if (ch->efd >= 0)
		close(ch->efd);
	pthread_mutex_destroy(&ch->lock);
	pthread_cond_destroy(&ch->acked);
	free(ch);
}

/* @made: fresh from libibverbs. Its fd becomes non-blocking: only we read it from now on. */
static struct channel *new_channel(struct ctx *ctx, struct ibv_comp_channel *made)
{
	struct channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return NULL;
	ch->ctx = ctx;
	ch->real = *made;
	pthread_mutex_init(&ch->lock, NULL);
	pthread_cond_init(&ch->acked, NULL);
	ch->ep = epoll_create1(EPOLL_CLOEXEC);
	ch->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (ch->ep < 0 || ch->efd < 0 || !epoll_add(ch->ep, ch->efd) ||
	    !epoll_add(ch->ep, made->fd) || fcntl(made->fd, F_SETFL, O_NONBLOCK)) {
		free_channel(ch);
		return NULL;
	}
	return ch;
}

static void publish(struct channel *ch)
{
	ch->next = shim.all_channels;
	shim.all_channels = ch;
}

static void unpublish(struct channel *ch)
{
	struct channel **p;

	for (p = &shim.all_channels; *p; p = &(*p)->next)
		if (*p == ch) {
			*p = ch->next;
			return;
		}
}

struct channel *channel_hidden(struct ctx *ctx)
{
	struct ibv_comp_channel *made;

	if (ctx->hidden)
		return ctx->hidden;
	made = real()->ibv_create_comp_channel(ctx->ibv);
	if (!made)
		return NULL;
	ctx->hidden = new_channel(ctx, made);
	if (!ctx->hidden) {
		real()->ibv_destroy_comp_channel(made);
		return NULL;
	}
	ctx->hidden_made = made;
	publish(ctx->hidden);
	channel_take(ctx->hidden);
	return ctx->hidden;
}

void channel_take(struct channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	if (!ch->taken && progress_watch(ch->real.fd)) {
		epoll_ctl(ch->ep, EPOLL_CTL_DEL, ch->real.fd, NULL);
		ch->taken = true;
		progress_start(); /* nobody else reads it from now on */
	}
	pthread_mutex_unlock(&ch->lock);
}

/*
 * libibverbs counted the CQ at the private copy of the channel; the program's own must be the one
 * that is busy while the CQ lives (ibv_destroy_comp_channel: EBUSY).
 */
void channel_adopt(struct channel *ch, struct ibv_cq *cq)
{
	pthread_mutex_lock(&cq->context->mutex);
	ch->real.refcnt = 0;
	cq->channel = ch->pub;
	if (ch->pub)
		ch->pub->refcnt++;
	pthread_mutex_unlock(&cq->context->mutex);
}

/* ch->lock held */
static void append(struct channel *ch, struct cq *cq)
{
	cq->ev_next = NULL;
	if (ch->last)
		ch->last->ev_next = cq;
	else
		ch->first = cq;
	ch->last = cq;
}

/* ch->lock held */
static void queue_event(struct channel *ch, struct cq *cq)
{
	static const uint64_t one = 1;

	if (cq->muted)
		return;
	if (!cq->ev_pending++)
		append(ch, cq);
	if (write(ch->efd, &one, sizeof(one)) < 0)
		log_error("completion event: eventfd refused it");
}

void channel_event(struct channel *ch, struct cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	cq->app_armed = false;
	if (ch->pub)
		queue_event(ch, cq);
	pthread_mutex_unlock(&ch->lock);
}

/*
 * Armed or not is seen without the lock. A program that arms polls once more before it sleeps:
 * either that poll has cq->lock after us and finds the completion, or before us, and then we see
 * that it armed. One that does without has armed before it did what led to the completion.
 */
void channel_seen(struct cq *cq, const struct ibv_wc *wc)
{
	struct channel *ch = cq->ch;

	if (likely(!load_relaxed(&cq->app_armed)))
		return;
	pthread_mutex_lock(&ch->lock);
	/* Whether a receive was solicited only the NIC knows: it was armed for that (cq.c). */
	if (cq->app_armed && (!cq->app_solicited || wc->status != IBV_WC_SUCCESS)) {
		cq->seen_since_arm = true;
		if (ch->taken && ch->pub) {
			cq->app_armed = false;
			queue_event(ch, cq);
		}
	}
	pthread_mutex_unlock(&ch->lock);
}

/* ch->lock held. Takes the oldest event off the queue; NULL if there is none. */
static struct cq *pop_event(struct channel *ch)
{
	struct cq *cq = ch->first;
	uint64_t n;

	if (!cq)
		return NULL;
	if (read(ch->efd, &n, sizeof(n)) < 0)
		log_error("completion event: eventfd and queue disagree");
	ch->first = cq->ev_next;
	if (!ch->first)
		ch->last = NULL;
	if (--cq->ev_pending)
		append(ch, cq);
	return cq;
}

/* The next event of the NIC, acked; ch->lock held. NULL and errno if there is none. */
static struct ibv_cq *real_event(struct channel *ch)
{
	struct ibv_cq *ibv;
	void *cq_context;

	if (real()->ibv_get_cq_event(&ch->real, &ibv, &cq_context))
		return NULL;
	real()->ibv_ack_cq_events(ibv, 1);
	return ibv;
}

/*
 * Arming writes the number of the last event that was read (mlx5: arm_sn, cq.c of libmlx5). Two
 * threads, one reading and one arming, could put an old number over a new one, and the NIC would
 * wait for ever: both happen under ch->lock.
 */
int channel_arm_for_program(struct cq *cq, int solicited_only)
{
	struct channel *ch = cq->ch;
	int err;

	pthread_mutex_lock(&ch->lock);
	cq->app_armed = ch->pub != NULL;
	cq->app_solicited = solicited_only;
	cq->seen_since_arm = false;
	err = cq->ctx->ops.req_notify_cq(cq->ibv, solicited_only);
	pthread_mutex_unlock(&ch->lock);
	return err;
}

void channel_arm(struct cq *cq)
{
	struct channel *ch = cq->ch;

	pthread_mutex_lock(&ch->lock);
	/* Armed for solicited completions by the program: that stays, and ticks serve for ours. */
	if (!cq->app_armed || !cq->app_solicited)
		cq->hw_armed = !cq->ctx->ops.req_notify_cq(cq->ibv, 0);
	pthread_mutex_unlock(&ch->lock);
}

bool channel_needs_us(struct cq *cq, bool *armed)
{
	bool taken;

	pthread_mutex_lock(&cq->ch->lock);
	taken = cq->ch->taken;
	*armed = cq->app_armed;
	pthread_mutex_unlock(&cq->ch->lock);
	return taken;
}

int channel_fetch_real(struct channel *ch, struct cq **cq)
{
	struct ibv_cq *ibv;

	pthread_mutex_lock(&ch->lock);
	ibv = real_event(ch);
	pthread_mutex_unlock(&ch->lock);
	if (!ibv)
		return EAGAIN;
	*cq = cq_of(ibv);
	return 0;
}

/* ch->lock held */
static void unqueue(struct channel *ch, struct cq *cq)
{
	struct cq *c = ch->first, *next;

	ch->first = NULL;
	ch->last = NULL;
	for (; c; c = next) {
		next = c->ev_next;
		if (c != cq)
			append(ch, c);
	}
}

uint32_t channel_mute(struct cq *cq)
{
	struct channel *ch = cq->ch;
	uint32_t i, pending;
	uint64_t n;

	pthread_mutex_lock(&ch->lock);
	while (cq->ev_fetched != cq->ev_acked)
		pthread_cond_wait(&ch->acked, &ch->lock);
	cq->muted = true;
	pending = cq->ev_pending;
	for (i = 0; i < pending; i++)
		if (read(ch->efd, &n, sizeof(n)) < 0)
			log_error("completion event: eventfd and queue disagree");
	if (pending)
		unqueue(ch, cq);
	cq->ev_pending = 0;
	pthread_mutex_unlock(&ch->lock);
	return pending;
}

void channel_unmute(struct cq *cq, uint32_t events)
{
	pthread_mutex_lock(&cq->ch->lock);
	cq->muted = false;
	while (events--)
		queue_event(cq->ch, cq);
	pthread_mutex_unlock(&cq->ch->lock);
}

/* One look for an event, made or from the NIC. 0 and *@ibv, or an errno. */
static int try_fetch(struct channel *ch, struct ibv_cq **ibv)
{
	struct cq *cq;
	int err = 0;

	pthread_mutex_lock(&ch->lock);
	cq = pop_event(ch);
	if (cq) {
		*ibv = cq->ibv;
	} else if (ch->taken) {
		err = EAGAIN;
	} else {
		*ibv = real_event(ch);
		err = *ibv ? 0 : errno;
		cq = *ibv ? cq_of(*ibv) : NULL;
		if (cq)
			cq->app_armed = false;
	}
	if (cq)
		cq->ev_fetched++;
	pthread_mutex_unlock(&ch->lock);
	return err;
}

/* ---- exported ---- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ibv)
{
	struct ibv_comp_channel *pub = real()->ibv_create_comp_channel(ibv);
	struct ctx *ctx = ctx_of(ibv);
	struct channel *ch;

	if (!pub || !ctx || !shim.managing)
		return pub;
	pthread_mutex_lock(&shim.registry);
	ch = new_channel(ctx, pub);
	if (ch && table_put(&shim.channels, table_ptr_key(pub), ch)) {
		free_channel(ch);
		ch = NULL;
	}
	if (ch) {
		ch->pub = pub;
		publish(ch);
		pub->fd = ch->ep;
	} else {
		/* Stays native; CQs on it cannot be managed then. */
		fcntl(pub->fd, F_SETFL, 0);
		log_warn("completion channel: no descriptors left; its CQs run unscheduled");
	}
	pthread_mutex_unlock(&shim.registry);
	return pub;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *pub)
{
	struct channel *ch = channel_of(pub);
	int err;

	if (!ch)
		return real()->ibv_destroy_comp_channel(pub);
	pthread_mutex_lock(&shim.registry);
	pthread_mutex_lock(&pub->context->mutex);
	err = pub->refcnt ? EBUSY : 0;
	pthread_mutex_unlock(&pub->context->mutex);
	if (!err) {
		if (ch->taken)
			progress_unwatch(ch->real.fd);
		unpublish(ch);
		table_del(&shim.channels, table_ptr_key(pub), ch);
		pub->fd = ch->real.fd;
		err = real()->ibv_destroy_comp_channel(pub);
		free_channel(ch);
	}
	pthread_mutex_unlock(&shim.registry);
	return err;
}

void channel_close_hidden(struct ctx *ctx)
{
	if (!ctx->hidden)
		return;
	progress_unwatch(ctx->hidden->real.fd);
	unpublish(ctx->hidden);
	real()->ibv_destroy_comp_channel(ctx->hidden_made);
	free_channel(ctx->hidden);
	ctx->hidden = NULL;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *pub, struct ibv_cq **ibv, void **cq_context)
{
	struct channel *ch = channel_of(pub);
	struct pollfd pfd;
	int err;

	if (!ch)
		return real()->ibv_get_cq_event(pub, ibv, cq_context);
	while ((err = try_fetch(ch, ibv)) != 0) {
		if (err == EAGAIN && fcntl(pub->fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		pfd = (struct pollfd){.fd = ch->ep, .events = POLLIN};
		if (err != EAGAIN || poll(&pfd, 1, -1) < 0)
			return -1;
	}
	*cq_context = (*ibv)->cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned int n)
{
	struct cq *cq = cq_of(ibv);

	if (!cq || !cq->ch) {
		real()->ibv_ack_cq_events(ibv, n);
		return;
	}
	pthread_mutex_lock(&cq->ch->lock);
	cq->ev_acked += n;
	pthread_cond_broadcast(&cq->ch->acked);
	pthread_mutex_unlock(&cq->ch->lock);
}
