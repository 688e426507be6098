/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that are opened with RTLD_DEEPBIND prefer what they are linked with to what is preloaded.
 * Their references to functions that we wrap are bound to us once they are loaded, as they would be
 * without that flag; all others stay.
 */
#ifndef RNICE_DEEPBIND_H
#define RNICE_DEEPBIND_H

#pragma GCC visibility push(hidden)

unsigned int deepbind_count(void); /* objects loaded now */
/* Rebind those that were loaded since there were @before. */
void deepbind_rebind(unsigned int before);

#pragma GCC visibility pop

#endif
