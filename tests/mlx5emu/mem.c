/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying between processes: process_vm_readv(2) and process_vm_writev(2), or plain copies when
 * the other side is this process. Lengths are equal on both sides of every call.
 */
#include <unistd.h>

#include "emu.h"

/*
 * Programs poll for the last bytes of a message, so they must become visible last. The C library
 * may store the end first; here the tail is stored by words, in order.
 */
void copy_ordered(void *dst, const void *src, size_t n)
{
	volatile uint64_t *w;
	char *d = dst;
	const char *s = src;
	uint64_t v;
	size_t head;

	if (n > 128) {
		head = (n - 64) & ~(size_t)63;
		memcpy(d, s, head);
		d += head;
		s += head;
		n -= head;
		atomic_thread_fence(memory_order_release);
	}
	for (; n && ((uintptr_t)d & 7); n--)
		*(volatile char *)d++ = *s++;
	for (; n >= 8; n -= 8, d += 8, s += 8) {
		w = (volatile uint64_t *)d;
		memcpy(&v, s, 8);
		*w = v;
	}
	for (; n; n--)
		*(volatile char *)d++ = *s++;
}

enum { MAX_IOV = 66 }; /* a WQE has at most 63 segments */

static void copy_lists(const struct iovec *to, const struct iovec *from)
{
	size_t t = 0, f = 0, n;

	for (;;) {
		while (t == to->iov_len) {
			to++;
			t = 0;
			if (!to->iov_base)
				return;
		}
		while (f == from->iov_len) {
			from++;
			f = 0;
			if (!from->iov_base)
				return;
		}
		n = to->iov_len - t < from->iov_len - f ? to->iov_len - t : from->iov_len - f;
		copy_ordered((char *)to->iov_base + t, (char *)from->iov_base + f, n);
		t += n;
		f += n;
	}
}

static int local_copy(const struct iovec *to, int nto, const struct iovec *from, int nfrom)
{
	struct iovec a[MAX_IOV + 1], b[MAX_IOV + 1];

	if (nto > MAX_IOV || nfrom > MAX_IOV)
		return EINVAL;
	memcpy(a, to, nto * sizeof(*a));
	memcpy(b, from, nfrom * sizeof(*b));
	a[nto] = b[nfrom] = (struct iovec){0};
	copy_lists(a, b);
	return 0;
}

static size_t iov_total(const struct iovec *v, int n)
{
	size_t sum = 0;

	while (n--)
		sum += v[n].iov_len;
	return sum;
}

int mem_push(uint32_t proc, const struct iovec *to, int nto, const struct iovec *from, int nfrom)
{
	size_t want = iov_total(from, nfrom);

	if (!want)
		return 0;
	if ((int)proc == self.proc)
		return local_copy(to, nto, from, nfrom);
	if (process_vm_writev(self.seg->proc[proc].pid, from, nfrom, to, nto, 0) != (ssize_t)want)
		return errno ? errno : EFAULT;
	return 0;
}

int mem_pull(uint32_t proc, const struct iovec *from, int nfrom, const struct iovec *to, int nto)
{
	size_t want = iov_total(to, nto);

	if (!want)
		return 0;
	if ((int)proc == self.proc)
		return local_copy(to, nto, from, nfrom);
	if (process_vm_readv(self.seg->proc[proc].pid, to, nto, from, nfrom, 0) != (ssize_t)want)
		return errno ? errno : EFAULT;
	return 0;
}

int mem_read(uint32_t proc, uint64_t addr, void *buf, size_t len)
{
	struct iovec to = {.iov_base = buf, .iov_len = len};
	struct iovec from = {.iov_base = (void *)(uintptr_t)addr, .iov_len = len};

	return mem_pull(proc, &from, 1, &to, 1);
}

/*
 * A record read byte by byte while the program writes 0x0a00 over 0x09ff can be 0x0900, and a CQ
 * looks as if it had overrun. How the kernel copies four bytes of another process, it does not
 * promise: what was read twice the same was there.
 */
int mem_record(uint32_t proc, uint64_t addr, uint32_t *value)
{
	uint32_t word, again;
	int err;

	if ((int)proc == self.proc) {
		*value = be32toh(*(volatile uint32_t *)(uintptr_t)addr);
		return 0;
	}
	err = mem_read(proc, addr, &word, sizeof(word));
	do {
		again = word;
		err = err ? err : mem_read(proc, addr, &word, sizeof(word));
	} while (!err && word != again);
	*value = be32toh(word);
	return err;
}

int mem_write(uint32_t proc, uint64_t addr, const void *buf, size_t len)
{
	struct iovec to = {.iov_base = (void *)(uintptr_t)addr, .iov_len = len};
	struct iovec from = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};

	return mem_push(proc, &to, 1, &from, 1);
}

/* A bad address from the program must be an error here, not a crash. */
bool mem_exists(uint64_t addr)
{
	char probe;
	struct iovec to = {.iov_base = &probe, .iov_len = 1};
	struct iovec from = {.iov_base = (void *)(uintptr_t)addr, .iov_len = 1};

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}
