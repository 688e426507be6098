/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who owns a slot, in one word that a CAS can set; and whether that process still lives.
 *
 *	bit 0       22            40            52           64
 *	    | pid    | start time  | pid namesp. | exec image |
 *
 * The start time (low bits, clock ticks; 0 = unknown) tells a process from a later one of the
 * same pid. The image (hash of the AT_RANDOM bytes, new with each exec) tells a process from the
 * program it was before exec, whose slot nobody gave back.
 */
#ifndef RNICE_OWNER_H
#define RNICE_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rnice_owner {
	uint64_t word;	/* never 0 */
	uint64_t start; /* clock ticks since boot; 0 unknown */
	uint64_t pidns; /* inode; 0 unknown */
	char comm[16];
	bool proc; /* /proc is there, and shows our pid namespace */
};

enum rnice_life {
	RNICE_ALIVE,
	RNICE_GONE,
	RNICE_FOREIGN /* in another pid namespace: its pid says nothing here */
};

/* Describe this process. Does not fail: what cannot be found out stays unknown. */
void rnice_owner_self(struct rnice_owner *self);

/* Does the owner @word live, as far as @self can tell? Some system calls; errno is kept. */
enum rnice_life rnice_owner_judge(const struct rnice_owner *self, uint64_t word);

uint32_t rnice_owner_pid(uint64_t word);

/* The part of /proc/PID/stat that matters. False: not such a line. */
struct rnice_pid_stat {
	uint32_t pid;
	char comm[16];
	char state;
	uint64_t threads, start;
};
bool rnice_pid_stat_parse(const char *line, struct rnice_pid_stat *out);

/* The inode of /proc/self/ns/@kind, 0 when unknown. */
uint64_t rnice_namespace(const char *kind);

#endif
