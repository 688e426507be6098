/* SPDX-License-Identifier: BSD-2-Clause */
#include "emu.h"

bool model_on(void)
{
	return false;
}

bool model_grant(struct emu_qp *qp, struct emu_qp *peer, const struct emu_wqe *w, uint64_t *len)
{
	(void)qp;
	(void)peer;
	(void)w;
	(void)len;
	return true;
}

/* The RNR NAK timer field (InfiniBand Architecture Specification, table 45), in nanoseconds. */
uint64_t rnr_timer_ns(uint32_t code)
{
	static const uint32_t us[32] = {
		655360, 10,   20,   30,	  40,	60,   80,    120,   160,   240,	  320,
		480,	640,  960,  1280, 1920, 2560, 3840,  5120,  7680,  10240, 15360,
		20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	return us[code & 31] * 1000ull;
}
