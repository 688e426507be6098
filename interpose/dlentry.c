/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entry points of dlsym(), dlvsym() and dlopen(). libc's own look at their return address to
 * know the caller: RTLD_NEXT means "behind the caller", and namespaces go by it. So a look-up that
 * is not ours leaves as a jump, with stack and registers as they came. No compiler promises that.
 *
 *	dlsym(handle, name):		rnice_dlsym_filter(handle, name, caller)
 *	dlvsym(handle, name, version):	rnice_dlvsym_filter(handle, name, version, caller)
 *	dlopen(file, flags):		rnice_dlopen_filter(file, flags)
 *
 * NULL from a filter: jump to rnice_next_dlsym and so on; else that is the result.
 */

/* The name of today's programs, and that of programs from before glibc 2.34. */
#define NAMES(name, type)                                     \
	".globl new_" name "\n.type new_" name ", " type "\n" \
	".symver new_" name ", " name "@@GLIBC_2.34\n"        \
	".globl old_" name "\n.type old_" name ", " type "\n" \
	".symver old_" name ", " name "@" OLD_GLIBC "\n"      \
	"new_" name ":\nold_" name ":\n"

#if defined(__x86_64__)
#define OLD_GLIBC "GLIBC_2.2.5"
/* Three pushes bring the stack to a multiple of 16; the caller's address is above them. */
#define ENTRY(name, save_caller)                                               \
	__asm__(".text\n.p2align 4\n" NAMES(                                   \
		#name, "@function") ".cfi_startproc\n"                         \
				    "endbr64\n"                                \
				    "push %rdi\n.cfi_adjust_cfa_offset 8\n"    \
				    "push %rsi\n.cfi_adjust_cfa_offset 8\n"    \
				    "push %rdx\n.cfi_adjust_cfa_offset 8\n"    \
				    "mov 24(%rsp), " save_caller "\n"          \
				    "call rnice_" #name "_filter\n"            \
				    "pop %rdx\n.cfi_adjust_cfa_offset -8\n"    \
				    "pop %rsi\n.cfi_adjust_cfa_offset -8\n"    \
				    "pop %rdi\n.cfi_adjust_cfa_offset -8\n"    \
				    "test %rax, %rax\n"                        \
				    "jz 1f\n"                                  \
				    "ret\n"                                    \
				    "1: jmp *rnice_next_" #name "(%rip)\n"     \
				    ".cfi_endproc\n"                           \
				    ".size new_" #name ", . - new_" #name "\n" \
				    ".size old_" #name ", . - old_" #name "\n")
ENTRY(dlsym, "%rdx");
ENTRY(dlvsym, "%rcx");
ENTRY(dlopen, "%rdx");

#elif defined(__aarch64__)
#define OLD_GLIBC "GLIBC_2.17"
/* "hint 34" is bti c: a legal target of an indirect call. */
#define ENTRY(name, save_caller)                                                   \
	__asm__(".text\n.p2align 4\n" NAMES(                                       \
		#name, "%function") ".cfi_startproc\n"                             \
				    "hint 34\n"                                    \
				    "stp x29, x30, [sp, #-48]!\n"                  \
				    ".cfi_def_cfa_offset 48\n"                     \
				    ".cfi_offset 29, -48\n"                        \
				    ".cfi_offset 30, -40\n"                        \
				    "mov x29, sp\n"                                \
				    "stp x0, x1, [sp, #16]\n"                      \
				    "str x2, [sp, #32]\n"                          \
				    "mov " save_caller ", x30\n"                   \
				    "bl rnice_" #name "_filter\n"                  \
				    "mov x16, x0\n"                                \
				    "ldp x0, x1, [sp, #16]\n"                      \
				    "ldr x2, [sp, #32]\n"                          \
				    "ldp x29, x30, [sp], #48\n"                    \
				    ".cfi_def_cfa_offset 0\n"                      \
				    ".cfi_restore 29\n"                            \
				    ".cfi_restore 30\n"                            \
				    "cbz x16, 1f\n"                                \
				    "mov x0, x16\n"                                \
				    "ret\n"                                        \
				    "1: adrp x16, rnice_next_" #name "\n"          \
				    "ldr x16, [x16, :lo12:rnice_next_" #name "]\n" \
				    "br x16\n"                                     \
				    ".cfi_endproc\n"                               \
				    ".size new_" #name ", . - new_" #name "\n"     \
				    ".size old_" #name ", . - old_" #name "\n")
ENTRY(dlsym, "x2");
ENTRY(dlvsym, "x3");
ENTRY(dlopen, "x2");

#else
#error "dlsym(): no entry for this architecture; see the two above"
#endif
