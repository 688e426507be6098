/* SPDX-License-Identifier: BSD-2-Clause */
#include "interpose/deepbind.h"

#include "interpose/dl.h"
#include "interpose/elf.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { SLOT_CALL = R_X86_64_JUMP_SLOT, SLOT_ADDRESS = R_X86_64_GLOB_DAT, SLOT_DATA = R_X86_64_64 };
#elif defined(__aarch64__)
enum {
	SLOT_CALL = R_AARCH64_JUMP_SLOT,
	SLOT_ADDRESS = R_AARCH64_GLOB_DAT,
	SLOT_DATA = R_AARCH64_ABS64
};
#endif

struct object {
	struct elf_tables t;
	uintptr_t base;
	uintptr_t relro, relro_end; /* whole pages */
};

static int count(struct dl_phdr_info *info, size_t size, void *n)
{
	(void)info;
	(void)size;
	++*(unsigned int *)n;
	return 0;
}

unsigned int deepbind_count(void)
{
	unsigned int n = 0;

	dl_iterate_phdr(count, &n);
	return n;
}

/* The version that the reference number @index wants; NULL: none. */
static const char *wanted_version(const struct elf_tables *t, size_t index)
{
	const ElfW(Verneed) *need = t->verneed;
	const ElfW(Vernaux) * aux;
	unsigned int i;

	while (t->versym && need) {
		aux = (const void *)((const char *)need + need->vn_aux);
		for (i = 0; i < need->vn_cnt; i++) {
			if (aux->vna_other == (t->versym[index] & 0x7fff))
				return t->str + aux->vna_name;
			aux = (const void *)((const char *)aux + aux->vna_next);
		}
		need = need->vn_next ? (const void *)((const char *)need + need->vn_next) : NULL;
	}
	return NULL;
}

static void write_slot(const struct object *o, const void **slot, const void *value)
{
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)slot & ~(size - 1);
	bool sealed = (uintptr_t)slot >= o->relro && (uintptr_t)slot < o->relro_end;

	if (sealed && mprotect((void *)page, size, PROT_READ | PROT_WRITE))
		return;
	__atomic_store_n(slot, value, __ATOMIC_RELAXED);
	if (sealed)
		mprotect((void *)page, size, PROT_READ);
}

static void rebind(const struct object *o, const ElfW(Rela) * rela, size_t n)
{
	const char *version;
	const void *ours;

	for (; n; n--, rela++) {
		size_t type = ELF64_R_TYPE(rela->r_info), index = ELF64_R_SYM(rela->r_info);

		if ((type != SLOT_CALL && type != SLOT_ADDRESS && type != SLOT_DATA) ||
		    o->t.sym[index].st_shndx != SHN_UNDEF || rela->r_addend)
			continue;
		version = wanted_version(&o->t, index);
		ours = version ? dl_wrapper(o->t.str + o->t.sym[index].st_name, version) : NULL;
		if (ours)
			write_slot(o, (const void **)(o->base + rela->r_offset), ours);
	}
}

/* ld.so seals whole pages only. */
static void find_relro(struct object *o, const struct dl_phdr_info *info)
{
	uintptr_t mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	int i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_GNU_RELRO)
			continue;
		o->relro = (o->base + p->p_vaddr) & mask;
		o->relro_end = (o->base + p->p_vaddr + p->p_memsz) & mask;
	}
}

static int rebind_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dyn = elf_dynamic(info);
	struct object o = {.base = info->dlpi_addr};
	unsigned int *skip = arg;

	(void)size;
	if (*skip) {
		--*skip;
		return 0;
	}
	if (!dyn)
		return 0;
	elf_read(&o.t, o.base, dyn);
	find_relro(&o, info);
	if (o.t.sym && o.t.str) {
		rebind(&o, o.t.rela, o.t.rela_count);
		rebind(&o, o.t.plt, o.t.plt_count);
	}
	return 0;
}

void deepbind_rebind(unsigned int before)
{
	dl_iterate_phdr(rebind_object, &before);
}
