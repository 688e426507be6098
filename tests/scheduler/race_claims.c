/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads join and leave as processes, attach new devices, and plant slots of dead owners for
 * each other to reclaim. No slot may have two owners. For ThreadSanitizer. Exit status: 0 pass.
 */
#include "race.h"

#include <sys/wait.h>

#include "scheduler/proc.h"

#define THREADS 4
#define RUN_NS SEC

static struct {
	struct rnice_segment *seg;
	uint64_t until, dead_word;
	uint32_t users[RNICE_MAX_PROCS];
} race;

/* A word whose process is gone. */
static uint64_t dead_word(void)
{
	struct rnice_owner me;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	rnice_owner_self(&me);
	return (me.word & ~((UINT64_C(1) << 40) - 1)) | (uint32_t)pid;
}

static void *live(void *arg)
{
	unsigned round = (unsigned)(uintptr_t)arg;

	for (; clock_now() < race.until; round++) {
		struct rnice_proc *proc = join(race.seg, 0);
		struct rnice_port *port;
		char name[32];

		require(add_seq_cst(&race.users[proc->index], 1) == 0, "two owners of a slot");
		snprintf(name, sizeof(name), "dev%u", round % RNICE_MAX_DEVICES);
		require(!rnice_port_attach(proc, name, &port), "attach");
		rnice_port_backlog(port, true, clock_now());
		if (rnice_port_take(port, 4096, clock_now()) && round % 2)
			rnice_port_done(port, 4096, true, clock_now());
		if (round % 3 == 0)
			rnice_port_detach(port);
		add_seq_cst(&race.users[proc->index], (uint32_t)-1);
		rnice_proc_leave(proc);
		cas_seq_cst(&race.seg->shm->slot[round % 8].owner, 0, race.dead_word);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];

	race.dead_word = dead_word();
	race.seg = fresh_segment("race-claims");
	race.until = clock_now() + RUN_NS;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, live, (void *)(uintptr_t)(i * 5));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	rnice_segment_close(race.seg);
	printf("PASS race_claims\n");
	return 0;
}
