/* SPDX-License-Identifier: BSD-2-Clause */
#include "test_segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

static int open_quietly(const char *name, bool create)
{
	struct rnice_segment *seg = NULL;
	int err = rnice_segment_open(name, create, &seg, NULL, 0);

	if (!err)
		rnice_segment_close(seg);
	return err;
}

/* The phrase of a failure; "" on success. */
static const char *phrase(const char *name, bool create)
{
	static char why[256];
	struct rnice_segment *seg = NULL;

	why[0] = '\0';
	if (!rnice_segment_open(name, create, &seg, why, sizeof(why)))
		rnice_segment_close(seg);
	return why;
}

static void write_file(const char *name, const void *data, size_t len, off_t size)
{
	int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, data, len), (ssize_t)len);
	cr_assert_eq(ftruncate(fd, size), 0);
	close(fd);
}

Test(segment, a_new_one_has_mode_0600_whatever_the_umask_is)
{
	const char *name = fresh_name();
	struct stat st;

	umask(0);
	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(stat(name, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0600);
	unlink(name);
	umask(0777);
	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(stat(name, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0600);
	unlink(name);
}

Test(segment, all_of_its_memory_is_allocated_at_creation)
{
	const char *name = fresh_name();
	struct stat st;

	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(stat(name, &st), 0);
	unlink(name);
	cr_expect_eq(st.st_size, (off_t)sizeof(struct shm));
	cr_expect_geq(st.st_blocks * 512, st.st_size);
}

Test(segment, a_mode_chosen_by_the_administrator_stays)
{
	const char *name = fresh_name();
	struct stat st;

	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(chmod(name, 0660), 0);
	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(stat(name, &st), 0);
	unlink(name);
	cr_expect_eq(st.st_mode & 07777, 0660);
}

Test(segment, two_openers_see_the_same_memory)
{
	const char *name = fresh_name();
	struct rnice_segment *a, *b;
	struct rnice_proc_stat st;

	cr_assert_eq(rnice_segment_open(name, true, &a, NULL, 0), 0);
	cr_assert_eq(rnice_segment_open(name + strlen("/dev/shm/"), false, &b, NULL, 0), 0);
	unlink(name);
	join_as(a, (struct rnice_proc_info){.cls = RNICE_CLASS_LATENCY});
	cr_assert(rnice_segment_proc(b, 0, &st));
	cr_expect_eq(st.pid, (uint32_t)getpid());
	cr_expect_eq(st.cls, RNICE_CLASS_LATENCY);
	cr_expect_not(rnice_segment_proc(b, 1, &st));
	keep(a);
	keep(b);
}

Test(segment, what_is_not_there_is_not_made_unless_asked)
{
	const char *name = fresh_name();

	cr_expect_eq(open_quietly(name, false), ENOENT);
	cr_expect_neq(access(name, F_OK), 0);
	cr_expect_str_eq(phrase(name, false) + strlen(name), " does not exist");
}

Test(segment, another_version_is_refused_and_not_modified)
{
	struct shm_header h = {.magic = SHM_MAGIC, .version = SHM_VERSION + 1}, after;
	const char *name = fresh_name();
	char version[32];
	int fd;

	snprintf(version, sizeof(version), "version %d,", SHM_VERSION + 1);
	write_file(name, &h, sizeof(h), sizeof(struct shm));
	cr_expect_eq(open_quietly(name, true), EPROTO);
	cr_expect(strstr(phrase(name, true), version), "%s", phrase(name, true));
	fd = open(name, O_RDONLY);
	cr_assert_eq(read(fd, &after, sizeof(after)), (ssize_t)sizeof(after));
	close(fd);
	unlink(name);
	cr_expect_eq(memcmp(&h, &after, sizeof(h)), 0);
}

Test(segment, a_file_that_is_none_is_refused)
{
	const char *name = fresh_name();

	write_file(name, "hello", 5, 5);
	cr_expect_eq(open_quietly(name, true), EPROTO);
	unlink(name);
	write_file(name, "", 0, 0);
	cr_expect_eq(open_quietly(name, true), EPROTO);
	unlink(name);
	write_file(name, "\1\2\3", 3, sizeof(struct shm));
	cr_expect_eq(open_quietly(name, true), EPROTO);
	unlink(name);
}

Test(segment, a_truncated_one_is_refused)
{
	const char *name = fresh_name();

	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(truncate(name, 4096), 0);
	cr_expect_eq(open_quietly(name, true), EPROTO);
	unlink(name);
}

Test(segment, links_directories_and_pipes_are_refused_without_waiting, .timeout = 5)
{
	const char *name = fresh_name();

	cr_assert_eq(symlink("/dev/null", name), 0);
	cr_expect_eq(open_quietly(name, true), ELOOP);
	unlink(name);
	cr_assert_eq(mkfifo(name, 0600), 0);
	cr_expect_eq(open_quietly(name, true), EPROTO);
	unlink(name);
	cr_assert_eq(mkdir(name, 0700), 0);
	cr_expect_neq(open_quietly(name, true), 0);
	rmdir(name);
}

Test(segment, a_missing_directory_is_named_in_the_phrase)
{
	const char *why = phrase("/nonexistent/dir/seg", true);

	cr_expect_eq(open_quietly("/nonexistent/dir/seg", true), ENOENT);
	cr_expect_str_eq(why, "/nonexistent/dir/seg cannot be created: No such file or directory");
}

/* Root may write anywhere: become somebody else first. */
static void become_nobody(void)
{
	if (geteuid() == 0)
		cr_assert_eq(seteuid(54321), 0);
}

Test(segment, an_unwritable_directory_is_EACCES_with_a_phrase)
{
	char dir[] = "/tmp/rnice-test-XXXXXX", name[64];
	struct stat st;

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(stat(dir, &st), 0);
	cr_assert_eq(chmod(dir, 0555), 0);
	snprintf(name, sizeof(name), "%s/seg", dir);
	become_nobody();
	cr_expect_eq(open_quietly(name, true), EACCES);
	cr_expect(strstr(phrase(name, true), "Permission denied"), "%s", phrase(name, true));
	if (getuid() == 0)
		cr_assert_eq(seteuid(0), 0);
	rmdir(dir);
}

Test(segment, a_relative_name_with_a_slash_is_no_name)
{
	cr_expect_eq(open_quietly("../etc/passwd", true), EINVAL);
	cr_expect_eq(open_quietly("..", true), EINVAL);
}

Test(segment, a_name_too_long_is_told)
{
	char name[400];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	cr_expect_eq(open_quietly(name, true), ENAMETOOLONG);
}

Test(segment, the_default_name_is_by_uid_and_must_belong_to_it)
{
	const char *name = "/dev/shm/rnice-54321";

	if (geteuid() != 0)
		cr_skip_test("needs root to become another user");
	unlink(name);
	become_nobody();
	cr_expect_eq(open_quietly("", true), 0);
	cr_expect_eq(access(name, F_OK), 0);
	cr_assert_eq(seteuid(0), 0);
	cr_assert_eq(chown(name, 54322, 54322), 0);
	cr_assert_eq(chmod(name, 0666), 0);
	become_nobody();
	cr_expect_eq(open_quietly("", true), EACCES);
	cr_expect(strstr(phrase("", true), "belongs to uid 54322"), "%s", phrase("", true));
	cr_assert_eq(seteuid(0), 0);
	unlink(name);
}

Test(segment, who_may_only_read_can_look_but_not_join)
{
	const char *name = fresh_name();
	struct rnice_proc_info info = {0};
	struct rnice_segment *seg;
	struct rnice_proc *proc;

	if (geteuid() != 0)
		cr_skip_test("needs root to become another user");
	cr_assert_eq(open_quietly(name, true), 0);
	cr_assert_eq(chmod(name, 0644), 0);
	become_nobody();
	cr_assert_eq(rnice_segment_open(name, false, &seg, NULL, 0), 0);
	cr_expect_eq(rnice_proc_join(seg, &info, &proc), EACCES);
	cr_expect_eq(open_quietly(name, true), EACCES);
	cr_assert_eq(seteuid(0), 0);
	unlink(name);
	rnice_segment_close(seg);
}

Test(segment, a_file_size_limit_is_an_error_and_not_a_signal)
{
	struct rlimit limit = {4096, RLIM_INFINITY};
	const char *name = fresh_name();

	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(open_quietly(name, true), EFBIG);
	cr_expect_neq(access(name, F_OK), 0);
	limit.rlim_cur = RLIM_INFINITY; /* criterion writes files too */
	setrlimit(RLIMIT_FSIZE, &limit);
}

/* Exit status: 0 as expected, 77 no file system of one's own to be had here. */
static int open_on_full_file_system(void)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return 77;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
		return 77;
	if (open_quietly("full", true) != ENOSPC)
		return 1;
	if (!strstr(phrase("full", true), "does not fit: it needs"))
		return 2;
	return access("/dev/shm/full", F_OK) == 0 ? 3 : 0;
}

Test(segment, a_full_file_system_is_ENOSPC_and_nothing_stays_behind)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(open_on_full_file_system());
	status = wait_for(pid);
	if (status == 77)
		cr_skip_test("no private mount to be had");
	cr_expect_eq(status, 0);
}

Test(segment, errno_is_left_alone)
{
	const char *name = fresh_name();

	errno = 4711;
	open_quietly(name, false);
	open_quietly(name, true);
	cr_expect_eq(errno, 4711);
	unlink(name);
}

/* Open @name when *@go says so; the slot that we got, or 255. */
static int open_and_join(const char *name, uint32_t *go)
{
	struct rnice_proc_info info = {0};
	struct rnice_segment *seg;
	struct rnice_proc *proc;

	while (!load_acquire(go))
		cpu_relax();
	if (rnice_segment_open(name, true, &seg, NULL, 0) || rnice_proc_join(seg, &info, &proc))
		return 255;
	/* Stay: a slot given back would be given out again. */
	add_release(go, 1);
	while (load_acquire(go) < 1 + 8)
		sleep_ns(MSEC);
	return (int)proc->index;
}

Test(segment, of_many_simultaneous_creators_all_get_the_same_segment, .timeout = 20)
{
	uint32_t *go = shared_memory(4096);

	for (int round = 0; round < 10; round++) {
		const char *name = fresh_name();
		bool seen[8] = {false};
		pid_t pid[8];

		*go = 0;
		for (int i = 0; i < 8; i++)
			if ((pid[i] = fork()) == 0)
				_exit(open_and_join(name, go));
		store_release(go, 1);
		for (int i = 0; i < 8; i++) {
			int slot = wait_for(pid[i]);

			cr_assert_lt(slot, 8, "slot %d: two segments were in use", slot);
			cr_assert_not(seen[slot]);
			seen[slot] = true;
		}
		unlink(name);
	}
}

Test(segment, a_creator_killed_at_any_point_blocks_nobody, .timeout = 20)
{
	uint64_t rnd = 12345;

	for (int round = 0; round < 50; round++) {
		const char *name = fresh_name();
		pid_t pid = fork();

		if (pid == 0)
			_exit(open_quietly(name, true));
		sleep_ns(draw(&rnd, 3 * MSEC));
		kill(pid, SIGKILL);
		wait_for(pid);
		cr_assert_eq(open_quietly(name, true), 0);
		unlink(name);
	}
}
