/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlsym() and dlvsym() as programs find them under rnice. NCCL, ctypes and others open libibverbs
 * and look its functions up by handle; a preloaded library is not seen by such look-ups. They get
 * the wrappers of this library; every other look-up is libc's own, down to its dlerror().
 */
#ifndef RNICE_DL_H
#define RNICE_DL_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* Does @address lie in the same loaded object as @other? */
bool dl_same_object(const void *address, const void *other);

/* Keep the object that holds @address loaded for good: we hold pointers into it. */
void dl_pin(const void *address);

/* Our wrapper of that name and version, or NULL. */
const void *dl_wrapper(const char *name, const char *version);

#pragma GCC visibility pop

#endif
