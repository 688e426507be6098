/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking symbols up in loaded objects by hand, where dlsym() cannot serve: it is wrapped here, it
 * takes locks, and each failure of it shows in the program's dlerror().
 *
 * Nothing here allocates, takes a lock, or calls a function of libc (elf_behind() excepted): it
 * works before any constructor has run.
 */
#ifndef RNICE_ELF_H
#define RNICE_ELF_H

#include <link.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden)

bool elf_same(const char *a, const char *b);

/*
 * Where the object at @base with the dynamic section @dyn defines @name; NULL if it does not. With
 * @version NULL, its default version counts. An object without any versions matches each.
 */
void *elf_find(uintptr_t base, const ElfW(Dyn) * dyn, const char *name, const char *version);

/* DT_SONAME, "" if there is none. */
const char *elf_soname(uintptr_t base, const ElfW(Dyn) * dyn);

/* The objects after this library in load order. No lock: for the first call of a process. */
void *elf_first_behind(const char *name);

/*
 * What RTLD_NEXT would find from this library, or else in an object that was loaded with local
 * scope: the first one behind this library that defines @name. Holds ld.so's lock meanwhile.
 */
void *elf_behind(const char *name, const char *version);

/* ---- tables of an object, for those who look at more than one symbol ---- */
struct elf_tables {
	const ElfW(Sym) * sym;
	const char *str;
	const uint32_t *gnu_hash;
	const ElfW(Versym) * versym;
	const ElfW(Verdef) * verdef;
	const ElfW(Verneed) * verneed;
	const ElfW(Rela) * rela, *plt;
	size_t rela_count, plt_count;
	const char *soname;
};
void elf_read(struct elf_tables *t, uintptr_t base, const ElfW(Dyn) * dyn);
const ElfW(Dyn) * elf_dynamic(const struct dl_phdr_info *info);

#pragma GCC visibility pop

#endif
