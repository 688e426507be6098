/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking symbols up in loaded objects by hand; see the ELF gABI and the GNU hash section. */
#include "interpose/elf.h"

#include <stddef.h>

bool elf_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* ld.so has made most addresses absolute; those of read-only sections stay relative. */
static const void *at(uintptr_t base, ElfW(Addr) p)
{
	return (const void *)(p < base ? base + p : p);
}

void elf_read(struct elf_tables *t, uintptr_t base, const ElfW(Dyn) * dyn)
{
	size_t soname = 0;

	*t = (struct elf_tables){.soname = ""};
	for (; dyn->d_tag != DT_NULL; dyn++) {
		const void *p = at(base, dyn->d_un.d_ptr);

		switch (dyn->d_tag) {
		case DT_SYMTAB:
			t->sym = p;
			break;
		case DT_STRTAB:
			t->str = p;
			break;
		case DT_GNU_HASH:
			t->gnu_hash = p;
			break;
		case DT_VERSYM:
			t->versym = p;
			break;
		case DT_VERDEF:
			t->verdef = p;
			break;
		case DT_VERNEED:
			t->verneed = p;
			break;
		case DT_RELA:
			t->rela = p;
			break;
		case DT_RELASZ:
			t->rela_count = dyn->d_un.d_val / sizeof(*t->rela);
			break;
		case DT_JMPREL:
			t->plt = p;
			break;
		case DT_PLTRELSZ:
			t->plt_count = dyn->d_un.d_val / sizeof(*t->plt);
			break;
		case DT_SONAME:
			soname = dyn->d_un.d_val;
			break;
		}
	}
	if (soname && t->str)
		t->soname = t->str + soname;
}

const char *elf_soname(uintptr_t base, const ElfW(Dyn) * dyn)
{
	struct elf_tables t;

	elf_read(&t, base, dyn);
	return t.soname;
}

/* Is the definition number @index the one of @version? */
static bool version_fits(const struct elf_tables *t, uint32_t index, const char *version)
{
	const ElfW(Verdef) *def = t->verdef;
	const ElfW(Verdaux) * aux;
	ElfW(Versym) number;

	if (!t->versym)
		return true;
	number = t->versym[index];
	if (!version)
		return !(number & 0x8000); /* not hidden: the default */
	if (!def)
		return false;
	for (;;) {
		if (def->vd_ndx == (number & 0x7fff)) {
			aux = (const void *)((const char *)def + def->vd_aux);
			return elf_same(t->str + aux->vda_name, version);
		}
		if (!def->vd_next)
			return false;
		def = (const void *)((const char *)def + def->vd_next);
	}
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

void *elf_find(uintptr_t base, const ElfW(Dyn) * dyn, const char *name, const char *version)
{
	uint32_t hash = gnu_hash(name), first, i;
	const uint32_t *bucket, *chain;
	struct elf_tables t;

	elf_read(&t, base, dyn);
	if (!t.gnu_hash || !t.sym || !t.str || !t.gnu_hash[0])
		return NULL;
	first = t.gnu_hash[1];
	bucket = t.gnu_hash + 4 + t.gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(*bucket));
	chain = bucket + t.gnu_hash[0];
	i = bucket[hash % t.gnu_hash[0]];
	if (i < first)
		return NULL;
	for (;; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && t.sym[i].st_shndx != SHN_UNDEF &&
		    elf_same(t.str + t.sym[i].st_name, name) && version_fits(&t, i, version))
			return (void *)(base + t.sym[i].st_value);
		if (chain[i - first] & 1)
			return NULL;
	}
}

void *elf_first_behind(const char *name)
{
	const struct link_map *map;
	bool behind = false;
	void *f = NULL;

	for (map = _r_debug.r_map; map && !f; map = map->l_next) {
		if (behind)
			f = elf_find(map->l_addr, map->l_ld, name, NULL);
		behind |= map->l_ld == _DYNAMIC;
	}
	return f;
}

const ElfW(Dyn) * elf_dynamic(const struct dl_phdr_info *info)
{
	int i;

	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

struct search {
	const char *name, *version;
	bool behind;
	void *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dyn = elf_dynamic(info);
	struct search *s = arg;

	(void)size;
	if (s->behind && dyn)
		s->found = elf_find(info->dlpi_addr, dyn, s->name, s->version);
	s->behind |= dyn == _DYNAMIC;
	return s->found != NULL;
}

void *elf_behind(const char *name, const char *version)
{
	struct search s = {.name = name, .version = version};

	dl_iterate_phdr(look, &s);
	return s.found;
}
