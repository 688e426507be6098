/* SPDX-License-Identifier: BSD-2-Clause */
/* Who owns a slot: claims, the dead, namespaces, fork and exec. */
#include "test_segment.h"

#include <pthread.h>

static unsigned free_slots(struct rnice_segment *seg)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++)
		n += load_relaxed(&seg->shm->slot[i].owner) == 0;
	return n;
}

/* How many more processes can join; they leave again. */
static unsigned joinable(struct rnice_segment *seg)
{
	static struct rnice_proc *proc[RNICE_MAX_PROCS];
	struct rnice_proc_info info = {0};
	unsigned n = 0;

	while (n < RNICE_MAX_PROCS && !rnice_proc_join(seg, &info, &proc[n]))
		n++;
	for (unsigned i = 0; i < n; i++)
		rnice_proc_leave(proc[i]);
	return n;
}

/* A word like ours but for @pid and, if not 0, start time bits. */
static uint64_t word_of(const struct rnice_owner *me, uint32_t pid, uint64_t start)
{
	uint64_t mask = (UINT64_C(1) << 40) - 1;

	return (me->word & ~mask) | start << 22 | pid;
}

static pid_t dead_pid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	wait_for(pid);
	return pid;
}

Test(slots, join_shows_who_it_is_and_leave_gives_the_slot_back)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_proc_stat st;
	struct rnice_proc *proc;

	proc = join_as(seg, (struct rnice_proc_info){.cls = RNICE_CLASS_BULK,
						     .policy = RNICE_POLICY_STATIC});
	cr_assert(rnice_segment_proc(seg, proc->index, &st));
	cr_expect_eq(st.pid, (uint32_t)getpid());
	cr_expect_eq(st.cls, RNICE_CLASS_BULK);
	cr_expect_eq(st.policy, RNICE_POLICY_STATIC);
	cr_expect(strstr("test_segment_slots", st.comm) && st.comm[0], "comm is %s", st.comm);
	rnice_proc_leave(proc);
	cr_expect_not(rnice_segment_proc(seg, 0, &st));
	cr_expect_eq(free_slots(seg), RNICE_MAX_PROCS);
}

Test(slots, leaving_and_closing_nothing_is_allowed)
{
	rnice_proc_leave(NULL);
	rnice_segment_close(NULL);
}

Test(slots, when_all_belong_to_the_living_the_next_gets_ENOSPC)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_proc *last = NULL, *more;
	struct rnice_proc_info info = {0};

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++)
		last = join_as(seg, info);
	cr_expect_eq(rnice_proc_join(seg, &info, &more), ENOSPC);
	rnice_proc_leave(last);
	cr_expect_eq(rnice_proc_join(seg, &info, &more), 0);
	keep(more);
}

Test(slots, one_claimed_but_never_filled_is_reclaimed_when_its_claimer_died)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_owner me;

	rnice_owner_self(&me);
	store_relaxed(&seg->shm->slot[0].owner, word_of(&me, (uint32_t)dead_pid(), 0));
	store_relaxed(&seg->shm->slot[1].owner, word_of(&me, (uint32_t)dead_pid(), 77));
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
}

Test(slots, a_later_process_of_the_same_pid_is_not_the_owner)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_owner me;
	uint64_t other;

	rnice_owner_self(&me);
	other = (me.start + 1) & 0x3ffff;
	store_relaxed(&seg->shm->slot[0].owner, word_of(&me, (uint32_t)getpid(), other));
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
}

Test(slots, what_this_process_had_before_exec_is_reclaimed)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_owner me;

	rnice_owner_self(&me);
	store_relaxed(&seg->shm->slot[0].owner, me.word ^ UINT64_C(1) << 60);
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
}

Test(slots, a_living_process_keeps_its_slot)
{
	struct rnice_segment *seg = fresh_segment();
	pid_t pid = fork();

	if (pid == 0) {
		join_as(seg, (struct rnice_proc_info){0});
		pause();
	}
	while (free_slots(seg) == RNICE_MAX_PROCS)
		sleep_ns(MSEC);
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS - 1);
	kill(pid, SIGKILL);
	/* Not waited for: a zombie is as dead. */
	for (int i = 0; i < 1000 && joinable(seg) < RNICE_MAX_PROCS; i++)
		sleep_ns(MSEC);
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
	wait_for(pid);
}

static void *outlive(void *arg)
{
	(void)arg;
	sleep_ns(3 * SEC);
	_exit(0);
}

Test(slots, a_process_whose_main_thread_ended_is_alive, .timeout = 20)
{
	struct rnice_pid_stat st = {0};
	struct rnice_owner me;
	char path[64], line[1024] = "";
	pid_t pid = fork();
	pthread_t thread;

	if (pid == 0) {
		pthread_create(&thread, NULL, outlive, NULL);
		pthread_exit(NULL);
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 2000 && st.state != 'Z'; i++) {
		FILE *f = fopen(path, "r");

		cr_assert(fgets(line, sizeof(line), f));
		fclose(f);
		cr_assert(rnice_pid_stat_parse(line, &st));
		sleep_ns(MSEC);
	}
	cr_assert_eq(st.state, 'Z', "%s", line);
	rnice_owner_self(&me);
	cr_expect_eq(rnice_owner_judge(&me, word_of(&me, (uint32_t)pid, st.start & 0x3ffff)),
		     RNICE_ALIVE);
	kill(pid, SIGKILL);
	wait_for(pid);
}

Test(slots, one_of_another_pid_namespace_goes_only_when_room_is_short_and_it_is_silent)
{
	struct rnice_segment *seg = fresh_segment();
	struct shm_slot *slot = &seg->shm->slot[0];
	struct rnice_owner me;

	rnice_owner_self(&me);
	store_relaxed(&slot->owner, word_of(&me, (uint32_t)dead_pid(), 1) ^ UINT64_C(1) << 45);
	cr_expect_eq(rnice_owner_judge(&me, load_relaxed(&slot->owner)), RNICE_FOREIGN);
	store_relaxed(&slot->beat, clock_now());
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS - 1);
	store_relaxed(&slot->beat, clock_now() - 601 * SEC);
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
}

Test(slots, a_forked_child_does_not_give_back_its_parents_slot)
{
	struct rnice_segment *seg = fresh_segment();
	struct rnice_proc *proc = join_as(seg, (struct rnice_proc_info){0});
	pid_t pid = fork();

	if (pid == 0) {
		rnice_proc_leave(proc);
		_exit(0);
	}
	cr_assert_eq(wait_for(pid), 0);
	cr_expect(rnice_proc_owns(proc));
}

Test(slots, the_line_of_proc_pid_stat_is_read_with_any_program_name)
{
	const char *line = "42 (a) R (b) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 18 777 20 21";
	struct rnice_pid_stat st;

	cr_assert(rnice_pid_stat_parse(line, &st));
	cr_expect_eq(st.pid, 42);
	cr_expect_str_eq(st.comm, "a) R (b");
	cr_expect_eq(st.state, 'Z');
	cr_expect_eq(st.threads, 9);
	cr_expect_eq(st.start, 777);
}

Test(slots, a_broken_line_of_proc_pid_stat_is_none)
{
	struct rnice_pid_stat st;

	cr_expect_not(rnice_pid_stat_parse("", &st));
	cr_expect_not(rnice_pid_stat_parse("1 (x", &st));
	cr_expect_not(rnice_pid_stat_parse("1 )x(", &st));
	cr_expect_not(rnice_pid_stat_parse("1 (x)", &st));
	cr_expect_not(rnice_pid_stat_parse("1 (x) ", &st));
	cr_expect_not(rnice_pid_stat_parse("1 (x) R 2 3", &st));
}

/* Join and leave @rounds times; 1 if ever somebody else had our slot. */
static int join_and_leave(struct rnice_segment *seg, uint32_t *users, int rounds)
{
	struct rnice_proc_info info = {0};
	struct rnice_proc *proc;

	for (int i = 0; i < rounds; i++) {
		if (rnice_proc_join(seg, &info, &proc))
			return 2;
		if (add_seq_cst(&users[proc->index], 1) != 0)
			return 1;
		sleep_ns(i % 8 * USEC);
		add_seq_cst(&users[proc->index], (uint32_t)-1);
		rnice_proc_leave(proc);
	}
	return 0;
}

Test(slots, many_processes_joining_at_once_never_share_one, .timeout = 30)
{
	uint32_t *users = shared_memory(RNICE_MAX_PROCS * sizeof(*users));
	struct rnice_segment *seg = fresh_segment();
	pid_t pid[12];

	for (int i = 0; i < 12; i++)
		if ((pid[i] = fork()) == 0)
			_exit(join_and_leave(seg, users, 60));
	for (int i = 0; i < 12; i++)
		cr_expect_eq(wait_for(pid[i]), 0);
	cr_expect_eq(free_slots(seg), RNICE_MAX_PROCS);
}

/* A life that touches everything, over and over. */
static void live(struct rnice_segment *seg)
{
	struct rnice_proc_info info = {
		.cls = RNICE_CLASS_BULK, .policy = RNICE_POLICY_PREEMPT, .preempt_ns = 10000};
	struct rnice_proc *proc;
	struct rnice_port *port;

	while (!rnice_proc_join(seg, &info, &proc)) {
		rnice_port_attach(proc, "dev", &port);
		rnice_port_backlog(port, true, clock_now());
		for (int i = 0; i < 50; i++)
			if (rnice_port_take(port, 4096, clock_now()) && i % 2)
				rnice_port_done(port, 4096, true, clock_now());
		rnice_proc_leave(proc);
	}
	_exit(1);
}

/* Taken by those that are gone. */
static uint64_t bytes_left(struct rnice_segment *seg)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < RNICE_MAX_PROCS; i++)
		sum += rnice_flow_inflight(&seg->shm->slot[i].flow[0]);
	return sum;
}

Test(slots, hundreds_killed_at_random_points_leave_no_slot_and_no_bytes, .timeout = 60)
{
	struct rnice_segment *seg = fresh_segment();
	uint64_t rnd = 99;
	pid_t pid[4];

	for (int round = 0; round < 75; round++) {
		for (int i = 0; i < 4; i++)
			if ((pid[i] = fork()) == 0)
				live(seg);
		sleep_ns(draw(&rnd, 4 * MSEC));
		for (int i = 0; i < 4; i++)
			kill(pid[i], SIGKILL);
		for (int i = 0; i < 4; i++)
			cr_assert_eq(wait_for(pid[i]), 128 + SIGKILL);
	}
	cr_expect_eq(joinable(seg), RNICE_MAX_PROCS);
	cr_expect_eq(free_slots(seg), RNICE_MAX_PROCS);
	cr_expect_eq(bytes_left(seg), 0);
	for (unsigned w = 0; w < SHM_MEMBER_WORDS; w++)
		cr_expect_eq(load_relaxed(&seg->shm->device[0].members[w]), 0);
}

Test(slots, several_that_find_the_same_dead_owner_do_not_both_get_its_slot, .timeout = 30)
{
	struct rnice_segment *seg = fresh_segment();
	uint32_t *users = shared_memory(RNICE_MAX_PROCS * sizeof(*users));
	struct rnice_owner me;
	pid_t pid[8];

	rnice_owner_self(&me);
	for (int round = 0; round < 20; round++) {
		uint64_t word = word_of(&me, (uint32_t)dead_pid(), 3);

		for (unsigned i = 0; i < RNICE_MAX_PROCS; i++)
			store_relaxed(&seg->shm->slot[i].owner, word);
		for (int i = 0; i < 8; i++)
			if ((pid[i] = fork()) == 0)
				_exit(join_and_leave(seg, users, 1));
		for (int i = 0; i < 8; i++)
			cr_assert_eq(wait_for(pid[i]), 0);
		cr_assert_eq(free_slots(seg), RNICE_MAX_PROCS);
	}
}
