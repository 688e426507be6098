/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of several processes take and give back bytes of one device while latency QPs post,
 * ticks run and somebody reads the statistics. For ThreadSanitizer; in addition, by a clock that
 * stands still, the window must hold. Exit status: 0 pass.
 */
#include "race.h"

#define PROCS 3
#define THREADS 2 /* of each */
#define WINDOW 65536
#define MOST 30000
#define RUN_NS (SEC / 2)

static struct {
	struct rnice_segment *seg;
	struct rnice_port *port[PROCS];
	uint64_t until;
	bool frozen;
	int64_t truth;
	uint64_t takes;
} race;

static uint64_t now(void)
{
	return race.frozen ? 100 * SEC : clock_now();
}

static void *bulk(void *arg)
{
	struct rnice_port *port = arg;
	uint64_t rnd = (uint64_t)(uintptr_t)&rnd | 1, held[8], n = 0, bytes;
	int64_t sum;

	rnice_port_backlog(port, true, now());
	while (clock_now() < race.until) {
		rnd = rnd * 6364136223846793005u + 1442695040888963407u;
		bytes = 1 + (rnd >> 33) % MOST;
		if (n < 8 && rnice_port_take(port, bytes, now())) {
			sum = add_seq_cst(&race.truth, (int64_t)bytes) + (int64_t)bytes;
			require(!race.frozen || sum <= WINDOW - 1 + MOST, "window exceeded");
			held[n++] = bytes;
			add_relaxed(&race.takes, 1);
		} else if (n) {
			add_seq_cst(&race.truth, -(int64_t)held[--n]);
			rnice_port_done(port, held[n], rnd % 7 != 0, now());
			rnice_port_count(port, RNICE_CTR_BYTES, (int64_t)held[n]);
		} else {
			require(rnice_port_retry_ns(port, now()) <= SEC, "retry within a second");
			require(rnice_port_chunk(port) >= 1, "a chunk");
		}
	}
	while (n)
		rnice_port_done(port, held[--n], true, now());
	return NULL;
}

static void *latency(void *arg)
{
	struct rnice_port *port = arg;

	while (clock_now() < race.until) {
		uint64_t *line = rnice_port_activity_line(port);

		for (int i = 0; i < 100; i++)
			bump_relaxed(line);
		rnice_port_latency(port, 1000);
		rnice_port_activity_release(port, line);
	}
	return NULL;
}

static void *reader(void *arg)
{
	static struct rnice_proc_stat st;
	struct rnice_device_stat dev;

	(void)arg;
	while (clock_now() < race.until) {
		for (unsigned i = 0; i < 2 * PROCS; i++)
			rnice_segment_proc(race.seg, i, &st);
		rnice_segment_device(race.seg, 0, &dev);
		usleep(1000);
	}
	return NULL;
}

static void run(bool frozen)
{
	pthread_t thread[PROCS * THREADS + 2];
	struct rnice_proc *proc[PROCS];
	unsigned n = 0;

	race.frozen = frozen;
	race.until = clock_now() + RUN_NS;
	race.truth = 0;
	race.takes = 0;
	for (unsigned i = 0; i < PROCS; i++) {
		proc[i] = join(race.seg, WINDOW);
		require(!rnice_port_attach(proc[i], frozen ? "a" : "b", &race.port[i]), "attach");
		for (unsigned j = 0; j < THREADS; j++)
			pthread_create(&thread[n++], NULL, bulk, race.port[i]);
	}
	pthread_create(&thread[n++], NULL, latency, race.port[0]);
	pthread_create(&thread[n++], NULL, reader, NULL);
	while (n)
		pthread_join(thread[--n], NULL);
	require(race.takes > 100, "takes");
	for (unsigned i = 0; i < PROCS; i++)
		rnice_proc_leave(proc[i]);
}

int main(void)
{
	race.seg = fresh_segment("race-admission");
	run(true);
	run(false);
	rnice_segment_close(race.seg);
	printf("PASS race_admission\n");
	return 0;
}
