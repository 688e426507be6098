/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports of a process, and its activity lines.
 *
 * Devices are never removed from the segment. The first process that needs one claims the first
 * free record by setting its key, a hash of the name, with one CAS: there is no half-claimed
 * state.
 */
#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/proc.h"

/* FNV-1a; never 0. */
static uint64_t hash(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return h ? h : 1;
}

static int find_device(struct shm *shm, uint64_t key)
{
	for (int i = 0; i < RNICE_MAX_DEVICES; i++) {
		uint64_t found = load_relaxed(&shm->device[i].key);

		if (!found && cas_seq_cst(&shm->device[i].key, 0, key))
			return i;
		/* Whoever was faster may have wanted the same device. */
		if (load_relaxed(&shm->device[i].key) == key)
			return i;
	}
	return -1;
}

static void write_name(struct shm_device *dev, const char *name)
{
	uint64_t words[SHM_NAME_WORDS] = {0};

	memcpy(words, name, strnlen(name, sizeof(words) - 1));
	for (unsigned i = 0; i < SHM_NAME_WORDS; i++)
		store_relaxed(&dev->name[i], words[i]);
}

static void apply_settings(struct rnice_port *port, const struct rnice_proc_info *info)
{
	port->fixed_chunk = info->chunk > UINT32_MAX ? UINT32_MAX : (uint32_t)info->chunk;
	port->fixed_window = info->window;
	port->observe = info->policy == RNICE_POLICY_OBSERVE;
}

int rnice_port_attach(struct rnice_proc *proc, const char *name, struct rnice_port **out)
{
	struct shm *shm = proc->seg->shm;
	int index = find_device(shm, hash(name));
	struct rnice_port *port;

	if (index < 0)
		return ENOSPC;
	port = &proc->port[index];
	if (port->refs++ == 0) {
		port->proc = proc;
		port->index = (unsigned)index;
		port->dev = &shm->device[index];
		port->flow = &proc->slot->flow[index];
		port->self[proc->index / 64] = UINT64_C(1) << (proc->index % 64);
		port->inflight = 0;
		port->lost = !rnice_proc_owns(proc);
		write_name(port->dev, name);
		apply_settings(port, &proc->info);
		store_relaxed(&port->flow->used, 1);
		or_seq_cst(&port->dev->members[proc->index / 64], UINT64_C(1)
									  << (proc->index % 64));
	}
	*out = port;
	return 0;
}

void rnice_port_detach(struct rnice_port *port)
{
	struct shm_flow *flow;

	if (!port || --port->refs)
		return;
	flow = port->flow;
	if (port->lost || !rnice_proc_owns(port->proc))
		return;
	store_relaxed(&flow->want, 0);
	add_release(&flow->done, load_relaxed(&flow->taken) - load_relaxed(&flow->done));
	store_relaxed(&flow->used, 2);
	and_relaxed(&port->dev->members[port->proc->index / 64],
		    ~(UINT64_C(1) << (port->proc->index % 64)));
}

uint64_t *rnice_port_activity_line(struct rnice_port *port)
{
	struct rnice_proc *proc = port->proc;
	uint64_t taken = load_relaxed(&proc->lines);
	struct shm_activity *line;
	unsigned i;

	do {
		if (taken == UINT64_MAX)
			return &port->flow->posts; /* shared: an increment may get lost, fine */
		i = (unsigned)__builtin_ctzll(~taken);
	} while (!cas_weak_relaxed(&proc->lines, &taken, taken | UINT64_C(1) << i));
	line = &proc->slot->line[i];
	if (rnice_proc_owns(proc)) {
		store_relaxed(&line->posts, 0);
		store_relaxed(&line->device, port->index + 1);
		or_relaxed(&port->flow->lines, UINT64_C(1) << i);
	}
	return &line->posts;
}

void rnice_port_activity_release(struct rnice_port *port, uint64_t *line)
{
	struct shm_slot *slot = port->proc->slot;
	uint64_t bit;
	size_t i;

	if (line == &port->flow->posts)
		return;
	i = (size_t)((struct shm_activity *)line - slot->line);
	if (i >= SHM_LINES)
		return;
	bit = UINT64_C(1) << i;
	if (rnice_proc_owns(port->proc)) {
		/* Moved, not dropped: otherwise the sum changes and looks like a post. */
		add_relaxed(&port->flow->retired, load_relaxed(line));
		and_relaxed(&port->flow->lines, ~bit);
		store_relaxed(&slot->line[i].device, 0);
	}
	and_relaxed(&port->proc->lines, ~bit);
}
