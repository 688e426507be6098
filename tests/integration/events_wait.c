/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways to wait for the fd of a channel; one at a time. */
#include "events.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static int ep_fd = -1, outer_fd = -1;

static void wait_nothing(int fd)
{
	(void)fd; /* ibv_get_cq_event itself blocks */
}

static void wait_poll(int fd)
{
	vu_check(readable(fd, WAIT_MS), "poll(): no event");
}

static void wait_select(int fd)
{
	struct timeval tv = {WAIT_MS / 1000, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	vu_check(select(fd + 1, &set, NULL, NULL, &tv) == 1 && FD_ISSET(fd, &set),
		 "select(): no event");
}

static int epoll_with(int fd, uint32_t flags)
{
	struct epoll_event ev = {.events = EPOLLIN | flags, .data.fd = fd};
	int ep = epoll_create1(EPOLL_CLOEXEC);

	vu_check(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), "epoll: %s", strerror(errno));
	return ep;
}

static void open_level(int fd)
{
	ep_fd = epoll_with(fd, 0);
}

static void open_edge(int fd)
{
	ep_fd = epoll_with(fd, EPOLLET);
}

static void open_nested(int fd)
{
	outer_fd = epoll_with(fd, 0);
	ep_fd = epoll_with(outer_fd, 0);
}

static void open_nested_edge(int fd)
{
	outer_fd = epoll_with(fd, EPOLLET);
	ep_fd = epoll_with(outer_fd, EPOLLET);
}

static void wait_epoll(int fd)
{
	struct epoll_event ev;

	(void)fd;
	vu_check(epoll_wait(ep_fd, &ev, 1, WAIT_MS) == 1, "epoll_wait(): no event");
	if (outer_fd >= 0) /* a program would look what it was; edges need that */
		epoll_wait(outer_fd, &ev, 1, 0);
}

static void close_epoll(void)
{
	close(ep_fd);
	if (outer_fd >= 0)
		close(outer_fd);
	ep_fd = outer_fd = -1;
}

static void nothing(int fd)
{
	(void)fd;
}

static void nothing_to_close(void)
{
}

const struct waiter waiters[] = {
	{"blocking", false, nothing, wait_nothing, nothing_to_close},
	{"poll", true, nothing, wait_poll, nothing_to_close},
	{"select", true, nothing, wait_select, nothing_to_close},
	{"epoll", true, open_level, wait_epoll, close_epoll},
	{"epoll-edge", true, open_edge, wait_epoll, close_epoll},
	{"epoll-nested", true, open_nested, wait_epoll, close_epoll},
	{"epoll-nested-edge", true, open_nested_edge, wait_epoll, close_epoll},
};
const size_t nwaiters = sizeof(waiters) / sizeof(waiters[0]);
