/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef RNICE_VERSION_H
#define RNICE_VERSION_H

#define RNICE_VERSION "0.1.0"

#endif
