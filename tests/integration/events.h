/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef EVENTS_H
#define EVENTS_H

#include "verbs_util.h"

#define WAIT_MS 20000 /* a completion that takes longer is a lost wake-up */

/* A way in which programs wait for the fd of a channel. */
struct waiter {
	const char *name;
	bool nonblocking;
	void (*open)(int fd);
	void (*wait)(int fd); /* until the fd is readable */
	void (*close)(void);
};

extern const struct waiter waiters[];
extern const size_t nwaiters;

bool readable(int fd, int ms);

#endif
