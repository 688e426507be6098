/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of settings, for those who print, generate or check something from it.
 * Everything is constant; every call from any thread. Formatters always terminate their output.
 */
#ifndef RNICE_SETTING_H
#define RNICE_SETTING_H

#include "config/config.h"

enum rnice_setting_type {
	RNICE_TYPE_WORD,   /* an enum; its value is the index in @words */
	RNICE_TYPE_SWITCH, /* a bool: off|on */
	RNICE_TYPE_NUMBER, /* a uint64_t in @unit */
	RNICE_TYPE_NAME	   /* a char array: name under /dev/shm or absolute path */
};

enum rnice_unit {
	RNICE_UNIT_NONE,
	RNICE_UNIT_USEC,
	RNICE_UNIT_BYTES,
	RNICE_UNIT_RATE,
	RNICE_UNIT_REGISTERS
};

struct rnice_setting {
	const char *name;	  /* "RNICE_PREEMPT_US"; the long option is "preempt-us" */
	const char *dflt;	  /* as a user would write it */
	const char *static_dflt;  /* what @zero means under policy static; NULL: nothing else */
	const char *zero;	  /* the word for 0 of a number ("auto"), or NULL */
	const char *help;	  /* whole sentences, plain text */
	const char *const *words; /* of a word or a switch, NULL at the end; else NULL */
	uint64_t min, max;	  /* of a number, in @unit */
	size_t offset, size;	  /* of the field in struct rnice_config */
	enum rnice_setting_type type;
	enum rnice_unit unit;
	char letter; /* short option, or 0 */
};

extern const struct rnice_setting rnice_settings[RNICE_SETTING_COUNT];

#define RNICE_SETTING_TEXT 288 /* bytes that hold any value, range or option name below */

/* NULL: no setting has that name. */
const struct rnice_setting *rnice_setting_find(const char *name);

/* The setting whose name has the least edit distance from @name; never NULL. */
const struct rnice_setting *rnice_setting_nearest(const char *name);

/* Its long command line option without dashes: "preempt-us". */
void rnice_setting_option(const struct rnice_setting *s, char *out, size_t len);

/* What may be written: "latency|bulk|auto", "auto|1..1g", ... */
void rnice_setting_values(const struct rnice_setting *s, char *out, size_t len);

/* The unit in words, "" if there is none: "microseconds". */
const char *rnice_setting_unit(const struct rnice_setting *s);

/* The value in force as a user would write it: setting it again changes nothing. */
void rnice_setting_format(const struct rnice_setting *s, const struct rnice_config *cfg, char *out,
			  size_t len);

/* Parse @value into the field of *@cfg. False: not a legal value, and *@cfg is unchanged. */
bool rnice_setting_parse(const struct rnice_setting *s, const char *value,
			 struct rnice_config *cfg);

/* The field of a number setting. */
uint64_t rnice_setting_number(const struct rnice_setting *s, const struct rnice_config *cfg);

/* The word of an enum value, for statistics: "?" if @value is out of range. */
const char *rnice_class_word(unsigned value);
const char *rnice_policy_word(unsigned value);
const char *rnice_uar_word(unsigned value);

#endif
