/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program needs of the host to use RDMA at all, and rnice to coordinate. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "telemetry/doctor.h"

#define SHM_DIR "/dev/shm"
#define SHM_NEEDED (8ULL << 20)	     /* a segment, rounded up */
#define MEMLOCK_NEEDED (64ULL << 20) /* less than this, and registering buffers soon fails */

/* ---- limits ---- */

static void check_memlock(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		doctor_fine("locked memory: unlimited");
	else if (limit.rlim_cur >= MEMLOCK_NEEDED || geteuid() == 0)
		doctor_fine("locked memory: up to %llu KiB%s",
			    (unsigned long long)limit.rlim_cur >> 10,
			    geteuid() ? "" : ", which does not bind root");
	else
		doctor_problem("locked memory: only %llu KiB (ulimit -l). Programs that register"
			       " more fail with ENOMEM; raise memlock in limits.conf(5)",
			       (unsigned long long)limit.rlim_cur >> 10);
}

static void check_shm(void)
{
	unsigned long long room;
	struct statvfs fs;

	if (statvfs(SHM_DIR, &fs)) {
		doctor_problem(SHM_DIR ": %s. Without it processes cannot coordinate unless"
				       " RNICE_SEGMENT names a file elsewhere",
			       strerror(errno));
		return;
	}
	room = (unsigned long long)fs.f_bavail * fs.f_frsize;
	if (room < SHM_NEEDED)
		doctor_problem(SHM_DIR
			       ": only %llu KiB free, and a new segment takes %llu. Programs"
			       " run unscheduled then",
			       room >> 10, SHM_NEEDED >> 10);
	else if (access(SHM_DIR, W_OK))
		doctor_problem(SHM_DIR ": not writable for this user; programs run unscheduled");
	else
		doctor_fine(SHM_DIR ": %llu MiB free", room >> 20);
}

/* ---- devices ---- */

static const char *sysfs(void)
{
	const char *path = getenv("SYSFS_PATH"); /* as libibverbs has it */

	return path && *path ? path : "/sys";
}

/* The first line of a file under sysfs, "" if there is none. */
__attribute__((format(printf, 3, 4))) static const char *first_line(char *out, int len,
								    const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list args;
	FILE *f;

	va_start(args, fmt);
	vsnprintf(path, sizeof(path), fmt, args);
	va_end(args);
	*out = '\0';
	f = fopen(path, "re");
	if (!f)
		return out;
	if (fgets(out, len, f))
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
	return out;
}

static int is_name(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void free_list(struct dirent **list, int n)
{
	while (n > 0)
		free(list[--n]);
	free(list);
}

static int list_dir(struct dirent ***out, const char *fmt, const char *arg)
{
	char path[PATH_MAX];
	int n;

	snprintf(path, sizeof(path), fmt, sysfs(), arg);
	n = scandir(path, out, is_name, alphasort);
	if (n < 0)
		*out = NULL;
	return n;
}

static void check_ports(const char *device)
{
	struct dirent **ports;
	char state[64], path[PATH_MAX];
	int n = list_dir(&ports, "%s/class/infiniband/%s/ports", device), up = 0;

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%s/state", sysfs(),
			 device, ports[i]->d_name);
		up += strstr(first_line(state, sizeof(state), "%s", path), "ACTIVE") != NULL;
	}
	free_list(ports, n);
	if (up)
		doctor_fine("device %s: %d port%s active", device, up, up > 1 ? "s" : "");
	else
		doctor_problem("device %s: no port is active; connections will fail", device);
}

static void check_devices(void)
{
	struct dirent **devices;
	int n = list_dir(&devices, "%s/class/infiniband%s", "");

	if (n <= 0)
		doctor_problem(
			"no RDMA device: nothing under %s/class/infiniband. Is the NIC's driver"
			" loaded?",
			sysfs());
	for (int i = 0; i < n; i++)
		check_ports(devices[i]->d_name);
	free_list(devices, n);
}

/* Programs open these; it changes nothing on the device. */
static void check_access(void)
{
	struct dirent **verbs;
	char path[PATH_MAX];
	int n = list_dir(&verbs, "%s/class/infiniband_verbs%s", ""), fd;

	for (int i = 0; i < n; i++) {
		if (strncmp(verbs[i]->d_name, "uverbs", 6))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", verbs[i]->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			close(fd);
		else
			doctor_problem("%s cannot be opened: %s", path, strerror(errno));
	}
	free_list(verbs, n);
}

void doctor_host(void)
{
	check_memlock();
	check_shm();
	check_devices();
	check_access();
}
