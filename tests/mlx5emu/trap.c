/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trap mode: every store to a doorbell page is caught, and the NIC runs inside it.
 *
 * The program's mapping of a UAR page is read-only. The SIGSEGV handler decodes the store (x86-64
 * only), performs it through a second mapping, and acts: a store to the first eight bytes of a
 * BlueFlame buffer (0x800, 0x900, 0xa00, 0xb00) is a send doorbell, one to 0x20 arms a CQ, all
 * others are the rest of a BlueFlame copy. Nothing is single-stepped and no page is ever opened,
 * so stores of other threads cannot slip through.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "emu.h"

#define EXPORT __attribute__((visibility("default")))

static bool installed;
static struct sigaction theirs; /* what the program wants for SIGSEGV */

void trap_trace(const char *fmt, ...)
{
	char line[160];
	va_list ap;
	int n;

	if (self.trace_fd < 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (real_write(self.trace_fd, line, n) < 0)
		self.trace_fd = -1;
}

/* A decoded store: how long the instruction is, and what it writes. */
struct store {
	int length;
	int bytes;
	uint64_t value[2];
};

#ifdef __x86_64__
/* Register numbers of the instruction set, in the order of mcontext's gregs. */
static const int gregs[16] = {
	REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8,	 REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

/* Bytes of ModRM, SIB and displacement. */
static int operand_length(const uint8_t *p)
{
	int mod = p[0] >> 6, rm = p[0] & 7, n = 1;

	if (rm == 4) {
		n++;
		if (mod == 0 && (p[1] & 7) == 5)
			n += 4;
	} else if (mod == 0 && rm == 5) {
		n += 4;
	}
	return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static bool sse_store(uint8_t prefix, uint8_t op)
{
	switch (op) {
	case 0x11: /* movups, movupd */
	case 0x29: /* movaps, movapd */
	case 0x2b: /* movntps, movntpd */
		return prefix == 0 || prefix == 0x66;
	case 0x7f: /* movdqa, movdqu */
		return prefix == 0x66 || prefix == 0xf3;
	case 0xe7: /* movntdq */
		return prefix == 0x66;
	default:
		return false;
	}
}

/* "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2: MOV, MOVNTI, MOVUPS. */
static bool decode(const ucontext_t *uc, struct store *s)
{
	const uint8_t *start = (const uint8_t *)uc->uc_mcontext.gregs[REG_RIP], *p = start;
	uint8_t prefix = 0, rex = 0;
	int reg;

	for (; *p == 0x66 || *p == 0xf2 || *p == 0xf3; p++)
		prefix = *p;
	if ((*p & 0xf0) == 0x40)
		rex = *p++;
	if (*p == 0x89 || (*p == 0x0f && p[1] == 0xc3)) {
		p += *p == 0x89 ? 1 : 2;
		reg = (p[0] >> 3 & 7) | (rex & 4 ? 8 : 0);
		s->bytes = rex & 8 ? 8 : prefix == 0x66 ? 2 : 4;
		s->value[0] = uc->uc_mcontext.gregs[gregs[reg]];
	} else if (*p == 0x0f && sse_store(prefix, p[1])) {
		p += 2;
		reg = (p[0] >> 3 & 7) | (rex & 4 ? 8 : 0);
		s->bytes = 16;
		memcpy(s->value, &uc->uc_mcontext.fpregs->_xmm[reg], 16);
	} else {
		return false;
	}
	s->length = p - start + operand_length(p);
	return true;
}

static void step_over(ucontext_t *uc, const struct store *s)
{
	uc->uc_mcontext.gregs[REG_RIP] += s->length;
}

static bool was_write(const ucontext_t *uc)
{
	return uc->uc_mcontext.gregs[REG_ERR] & 2;
}
#else
static bool decode(const ucontext_t *uc, struct store *s)
{
	(void)uc;
	(void)s;
	return false;
}

static void step_over(ucontext_t *uc, const struct store *s)
{
	(void)uc;
	(void)s;
}

static bool was_write(const ucontext_t *uc)
{
	(void)uc;
	return false;
}
#endif

static uint16_t record_of(const struct emu_qp *qp)
{
	return be32toh(*(volatile uint32_t *)(uintptr_t)(qp->dbrec + 4));
}

/* The doorbell says which QP; how far its queue goes is in the record, written before. */
static void run(struct emu_qp *qp)
{
	qp->tx.db_pi = record_of(qp);
	nic_qp_pass(qp);
	if (qp->scq >= 0)
		cq_check_arm(&self.seg->cq[qp->scq]);
}

/*
 * When a WR in the middle of a chain is refused, libmlx5 44 rings with whatever lies in the slot
 * of the refused one (mlx5/qp.c, the `out` label): an old index, or no QP at all. What hardware
 * makes of that is not known here; QPs of the page whose record is ahead are served.
 */
static void ring_stale(const struct emu_uar *u)
{
	uint32_t i;

	for (i = 0; i < self.nqps; i++) {
		struct emu_qp *qp = &self.seg->qp[self.qps[i]];

		if (qp->uar_page == u->page_id && qp->sq_cnt && record_of(qp) != qp->tx.db_pi)
			run(qp);
	}
}

/* The doorbell is the first half of the last control segment: opmod_idx_opcode, qpn_ds. */
static void ring(const struct emu_uar *u, uint32_t offset, uint64_t value)
{
	uint32_t op = be32toh((uint32_t)value), qd = be32toh((uint32_t)(value >> 32));
	uint32_t qpn = qd >> 8, index = op >> 8 & 0xffff;
	struct emu_qp *qp = qp_find(qpn);
	bool mine = qp && (int)qp->h.proc == self.proc;
	bool good = mine && (uint16_t)(index + ((qd & 0x3f) + 3) / 4) == record_of(qp);

	trap_trace("%d %d %u 0x%03x %s 0x%06x %u\n", self.pid, (int)syscall(SYS_gettid), u->page_id,
		   offset, good ? "db" : "stale", qpn, index);
	nic_lock();
	if (mine)
		run(qp);
	else
		ring_stale(u);
	nic_unlock();
}

static void arm(const struct emu_uar *u, uint32_t offset, uint64_t value)
{
	uint32_t word = be32toh((uint32_t)value), cqn = be32toh((uint32_t)(value >> 32));
	uint32_t slot = cqn - CQN_BASE;

	trap_trace("%d %d %u 0x%03x cq 0x%06x %u\n", self.pid, (int)syscall(SYS_gettid), u->page_id,
		   offset, cqn, word & 0xffffff);
	if (slot >= EMU_CQS)
		return;
	nic_lock();
	if ((int)self.seg->cq[slot].h.proc == self.proc &&
	    atomic_load(&self.seg->cq[slot].h.used) == 2) {
		cq_doorbell(&self.seg->cq[slot], word);
		cq_check_arm(&self.seg->cq[slot]);
	}
	nic_unlock();
}

static void act(const struct emu_uar *u, uint32_t offset, const struct store *s)
{
	memcpy((char *)u->alias + offset, s->value, s->bytes);
	if (offset >= 0x800 && !(offset & 0xff) && s->bytes >= 8)
		ring(u, offset, s->value[0]);
	else if (offset == MLX5_CQ_DOORBELL && s->bytes == 8)
		arm(u, offset, s->value[0]);
	else
		trap_trace("%d %d %u 0x%03x bf - %d\n", self.pid, (int)syscall(SYS_gettid),
			   u->page_id, offset, s->bytes);
}

static void pass_on(int sig, siginfo_t *info, void *uc)
{
	if (theirs.sa_flags & SA_SIGINFO) {
		theirs.sa_sigaction(sig, info, uc);
	} else if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
		theirs.sa_handler(sig);
	} else {
		/* Not ours: let the store fault again, with the default action. */
		struct sigaction dfl = {.sa_handler = SIG_DFL};
		int (*next)(int, const struct sigaction *, struct sigaction *) =
			(int (*)(int, const struct sigaction *, struct sigaction *))dlsym(
				RTLD_NEXT, "sigaction");

		next(sig, &dfl, NULL);
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct emu_uar *u = uar_at(info->si_addr);
	ucontext_t *uc = context;
	struct store s = {0};
	int err = errno;

	if (!u || !u->alias || !was_write(uc) || !decode(uc, &s)) {
		if (u)
			fprintf(stderr, "mlx5emu: cannot decode the store at %p\n", info->si_addr);
		pass_on(sig, info, context);
		return;
	}
	act(u, (char *)info->si_addr - (char *)u->app, &s);
	step_over(uc, &s);
	errno = err;
}

static int real_sigaction(int sig, const struct sigaction *act_, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);

	if (!next)
		next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(
			RTLD_NEXT, "sigaction");
	return next(sig, act_, old);
}

int trap_install(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESTART};
	const char *file = getenv("MLX5EMU_TRACE");

	sigfillset(&sa.sa_mask);
	if (real_sigaction(SIGSEGV, &sa, &theirs))
		return -1;
	installed = true;
	if (file && *file)
		self.trace_fd = real_open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	return 0;
}

/* The program may have a SIGSEGV handler of its own: it gets the faults that are not ours. */
EXPORT int sigaction(int sig, const struct sigaction *restrict new, struct sigaction *restrict old)
{
	if (!installed || sig != SIGSEGV)
		return real_sigaction(sig, new, old);
	if (old)
		*old = theirs;
	if (new)
		theirs = *new;
	return 0;
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;

	return sigaction(sig, &sa, &old) ? SIG_ERR : old.sa_handler;
}

/* A blocked SIGSEGV would kill the program at its next doorbell: it stays unblocked. */
static const sigset_t *without_segv(int how, const sigset_t *set, sigset_t *copy)
{
	if (!installed || !set || how == SIG_UNBLOCK)
		return set;
	*copy = *set;
	sigdelset(copy, SIGSEGV);
	return copy;
}

EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	static int (*next)(int, const sigset_t *, sigset_t *);
	sigset_t copy;

	if (!next)
		next = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT,
									 "pthread_sigmask");
	return next(how, without_segv(how, set, &copy), old);
}

EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	int err = pthread_sigmask(how, set, old);

	if (!err)
		return 0;
	errno = err;
	return -1;
}
