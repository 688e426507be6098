/* SPDX-License-Identifier: BSD-2-Clause */
#include "emu.h"
int cm_open(void) { errno = ENODEV; return -1; }
ssize_t cm_write(int fd, const void *buf, size_t n) { (void)fd; (void)buf; (void)n; errno = EINVAL; return -1; }
void cm_close(int fd, void *obj) { (void)fd; (void)obj; }
void cm_pass(void) {}
void cm_reclaim(uint32_t proc) { (void)proc; }
void cm_forked(void) {}
