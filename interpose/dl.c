/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which look-ups get our wrappers: those by a handle whose result is the vendor's own function of a
 * name and version that we wrap. RTLD_NEXT and RTLD_DEFAULT see a preloaded library by themselves.
 *
 * This file and elf.c run in every process that ever calls dlsym(), perhaps before any constructor
 * did: no sanitizer (Makefile), no allocation, no state but what is the same for all threads.
 */
#include "interpose/dl.h"

#include "interpose/deepbind.h"
#include "interpose/elf.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#define VERBS(X, version, name) X(name, #name, version, "libibverbs.so.1")
#define MLX5(X, version, name) X(name, #name, version, "libmlx5.so.1")
#define OTHER(X, version, name, library) X(name, #name, version, library)

/* Every function that librnice.map exports, but those of dlentry.c; tests/dl/run compares them. */
#define WRAPPERS(X)                                                           \
	VERBS(X, "IBVERBS_1.0", ibv_create_comp_channel)                      \
	VERBS(X, "IBVERBS_1.0", ibv_destroy_comp_channel)                     \
	VERBS(X, "IBVERBS_1.1", ibv_ack_cq_events)                            \
	VERBS(X, "IBVERBS_1.1", ibv_close_device)                             \
	VERBS(X, "IBVERBS_1.1", ibv_create_cq)                                \
	VERBS(X, "IBVERBS_1.1", ibv_create_qp)                                \
	VERBS(X, "IBVERBS_1.1", ibv_destroy_ah)                               \
	VERBS(X, "IBVERBS_1.1", ibv_destroy_cq)                               \
	VERBS(X, "IBVERBS_1.1", ibv_destroy_qp)                               \
	VERBS(X, "IBVERBS_1.1", ibv_get_cq_event)                             \
	VERBS(X, "IBVERBS_1.1", ibv_get_device_list)                          \
	VERBS(X, "IBVERBS_1.1", ibv_modify_qp)                                \
	VERBS(X, "IBVERBS_1.1", ibv_open_device)                              \
	VERBS(X, "IBVERBS_1.1", ibv_query_qp)                                 \
	VERBS(X, "IBVERBS_1.1", ibv_resize_cq)                                \
	VERBS(X, "IBVERBS_1.10", ibv_import_device)                           \
	VERBS(X, "IBVERBS_PRIVATE_34", verbs_open_device)                     \
	VERBS(X, "IBVERBS_PRIVATE_57", verbs_open_device)                     \
	VERBS(X, "IBVERBS_PRIVATE_59", verbs_open_device)                     \
	VERBS(X, "IBVERBS_PRIVATE_64", verbs_open_device)                     \
	VERBS(X, "IBVERBS_PRIVATE_65", verbs_open_device)                     \
	X(mlx5dv_init_obj_1_0, "mlx5dv_init_obj", "MLX5_1.0", "libmlx5.so.1") \
	MLX5(X, "MLX5_1.1", mlx5dv_create_cq)                                 \
	MLX5(X, "MLX5_1.2", mlx5dv_init_obj)                                  \
	MLX5(X, "MLX5_1.3", mlx5dv_create_qp)                                 \
	MLX5(X, "MLX5_1.3", mlx5dv_create_wq)                                 \
	MLX5(X, "MLX5_1.7", mlx5dv_devx_obj_create)                           \
	MLX5(X, "MLX5_1.7", mlx5dv_devx_obj_destroy)                          \
	MLX5(X, "MLX5_1.7", mlx5dv_open_device)                               \
	MLX5(X, "MLX5_1.8", mlx5dv_devx_qp_modify)                            \
	MLX5(X, "MLX5_1.8", mlx5dv_is_supported)                              \
	OTHER(X, "MLX4_1.0", mlx4dv_create_qp, "libmlx4.so.1")                \
	OTHER(X, "MLX4_1.0", mlx4dv_init_obj, "libmlx4.so.1")                 \
	OTHER(X, "EFA_1.0", efadv_create_driver_qp, "libefa.so.1")            \
	OTHER(X, "EFA_1.1", efadv_create_qp_ex, "libefa.so.1")                \
	OTHER(X, "EFA_1.2", efadv_create_cq, "libefa.so.1")                   \
	OTHER(X, "EFA_1.4", efadv_query_qp_wqs, "libefa.so.1")                \
	OTHER(X, "EFA_1.4", efadv_query_cq, "libefa.so.1")                    \
	OTHER(X, "MANA_1.0", manadv_init_obj, "libmana.so.1")

/* Only their addresses are wanted here; their types are the business of their own files. */
#define X(symbol, name, version, library) extern const char symbol[];
WRAPPERS(X)
#undef X

static const struct wrapper {
	const char *name, *version, *library;
	const void *ours;
} wrappers[] = {
#define X(symbol, name, version, library) {name, version, library, symbol},
	WRAPPERS(X)
#undef X
};

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlvsym_fn)(void *, const char *, const char *);
typedef void *(*dlopen_fn)(const char *, int);

/* On a libc without them; the architectures' ABI has no other. */
static void *no_dlsym(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

static void *no_dlopen(const char *file, int flags)
{
	(void)file;
	(void)flags;
	return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
	(void)handle;
	(void)name;
	(void)version;
	return NULL;
}

/* Behind us: libc's, or those of another preloaded library. dlentry.c jumps to them. */
__attribute__((visibility("hidden"))) _Atomic dlsym_fn rnice_next_dlsym = no_dlsym;
__attribute__((visibility("hidden"))) _Atomic dlvsym_fn rnice_next_dlvsym = no_dlvsym;
__attribute__((visibility("hidden"))) _Atomic dlopen_fn rnice_next_dlopen = no_dlopen;
static _Atomic bool ready;

/* Several threads may find the same at once. The constructor makes that a rarity. */
static __attribute__((constructor)) void find_next(void)
{
	dlvsym_fn dlvsym_behind = (dlvsym_fn)elf_first_behind("dlvsym");
	dlsym_fn dlsym_behind = (dlsym_fn)elf_first_behind("dlsym");
	dlopen_fn dlopen_behind = (dlopen_fn)elf_first_behind("dlopen");

	if (dlsym_behind)
		atomic_store_explicit(&rnice_next_dlsym, dlsym_behind, memory_order_relaxed);
	if (dlvsym_behind)
		atomic_store_explicit(&rnice_next_dlvsym, dlvsym_behind, memory_order_relaxed);
	if (dlopen_behind)
		atomic_store_explicit(&rnice_next_dlopen, dlopen_behind, memory_order_relaxed);
	atomic_store_explicit(&ready, true, memory_order_release);
}

bool dl_same_object(const void *address, const void *other)
{
	Dl_info a, b;

	return dladdr(address, &a) && dladdr(other, &b) && a.dli_fbase == b.dli_fbase;
}

void dl_pin(const void *address)
{
	Dl_info info;

	if (dladdr(address, &info))
		rnice_next_dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Is @p what @w wraps: that version of it, in that library? */
static bool is_wrapped(const struct wrapper *w, void *p)
{
	struct link_map *map;
	Dl_info info;

	return dladdr1(p, &info, (void **)&map, RTLD_DL_LINKMAP) &&
	       elf_same(elf_soname(map->l_addr, map->l_ld), w->library) &&
	       elf_find(map->l_addr, map->l_ld, w->name, w->version) == p;
}

/*
 * Does our wrapper lead to @p? Not if there are two copies of the library, and ours calls the other
 * one. If another interposer stands between, it does, except for that interposer itself: it looks
 * for what it shall call, and ours would call it again.
 */
static bool leads_to(const struct wrapper *w, void *p, const void *caller)
{
	void *next = elf_behind(w->name, w->version);

	return next == p || (next && !is_wrapped(w, next) && !dl_same_object(next, caller));
}

static void make_ready(void)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		find_next();
}

/* The row of a function that we may wrap; NULL with *@from past the end. */
static const struct wrapper *next_row(size_t *from, const char *name, const char *version)
{
	while (*from < sizeof(wrappers) / sizeof(wrappers[0])) {
		const struct wrapper *w = &wrappers[(*from)++];

		if (elf_same(w->name, name) && (!version || elf_same(w->version, version)))
			return w;
	}
	return NULL;
}

const void *dl_wrapper(const char *name, const char *version)
{
	const struct wrapper *w;
	size_t from = 0;

	w = next_row(&from, name, version);
	return w ? w->ours : NULL;
}

static bool may_wrap(void *handle, const char *name, const char *version)
{
	size_t from = 0;

	make_ready();
	return handle != RTLD_NEXT && handle != RTLD_DEFAULT && name &&
	       next_row(&from, name, version);
}

/* Our wrapper of @p, which libc found; NULL: none. */
static void *wrapper_of(void *p, const char *name, const char *version, const void *caller)
{
	const struct wrapper *w;
	size_t from = 0;

	while (p && (w = next_row(&from, name, version)))
		if (is_wrapped(w, p))
			return leads_to(w, p, caller) ? (void *)w->ours : NULL;
	return NULL;
}

/*
 * The result, or NULL: jump on, which repeats the look-up where it was made here. That leaves
 * dlerror() as libc alone would have left it.
 */
__attribute__((used, visibility("hidden"))) void *rnice_dlsym_filter(void *handle, const char *name,
								     const void *caller);
__attribute__((used, visibility("hidden"))) void *
rnice_dlvsym_filter(void *handle, const char *name, const char *version, const void *caller);
__attribute__((used, visibility("hidden"))) void *rnice_dlopen_filter(const char *file, int flags);

void *rnice_dlsym_filter(void *handle, const char *name, const void *caller)
{
	if (!may_wrap(handle, name, NULL))
		return NULL;
	return wrapper_of(rnice_next_dlsym(handle, name), name, NULL, caller);
}

void *rnice_dlvsym_filter(void *handle, const char *name, const char *version, const void *caller)
{
	if (!version || !may_wrap(handle, name, version))
		return NULL;
	return wrapper_of(rnice_next_dlvsym(handle, name, version), name, version, caller);
}

/* Does it matter who opens @file? Run paths and $ORIGIN are the caller's. */
static bool depends_on_caller(const char *file)
{
	bool path = false;

	for (; *file && *file != '$'; file++)
		path |= *file == '/';
	return *file || !path;
}

void *rnice_dlopen_filter(const char *file, int flags)
{
	unsigned int before;
	void *handle;

	make_ready();
	if (!(flags & RTLD_DEEPBIND) || !file || depends_on_caller(file))
		return NULL;
	before = deepbind_count();
	handle = rnice_next_dlopen(file, flags);
	if (handle)
		deepbind_rebind(before);
	return handle;
}
