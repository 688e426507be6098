/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains of mlx5 contexts ("doors"), and the QPs that are made on them. What decides is in
 * scheduler/uar.c; the rules of locking are in uar.h.
 */
#include "interpose/elf.h"
#include "interpose/node.h"
#include "interpose/uar_state.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* libmlx5 takes a UAR page from the kernel for every two thread domains. */
#define DOORS_PER_PAGE 2

struct uar *uar_all;

/* ---- contexts ---- */

/* A program that knows about thread domains arranges its doorbells itself. */
static void hands_off(struct ibv_context *ibv, bool own)
{
	struct ctx *c = ctx_of(ibv);

	pthread_mutex_lock(&shim.registry);
	if (own && !c->uar->programs && c->uar->plan.mode != RNICE_UAR_DRIVER)
		log_info("%s: the program has thread domains of its own; the driver places QPs",
			 ibv->device->name);
	c->uar->programs |= own;
	pthread_mutex_unlock(&shim.registry);
}

static struct ibv_td *hook_alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td = ctx_of(ibv)->uar->alloc_td(ibv, attr);

	hands_off(ibv, td != NULL);
	return td;
}

static struct ibv_pd *hook_alloc_parent_domain(struct ibv_context *ibv,
					       struct ibv_parent_domain_init_attr *attr)
{
	struct ibv_pd *pd = ctx_of(ibv)->uar->alloc_parent_domain(ibv, attr);

	hands_off(ibv, pd != NULL);
	return pd;
}

/* Only libmlx5's own contexts, whatever the device was renamed to. */
static bool is_mlx5(const struct ibv_context *ibv)
{
	bool (*supported)(struct ibv_device *) = elf_behind("mlx5dv_is_supported", "MLX5_1.8");

	return supported && supported(ibv->device);
}

static void hook(struct uar *u)
{
	struct verbs_context *v = verbs_get_ctx(u->ctx->ibv);

	if (v->sz < sizeof(*v) - offsetof(struct verbs_context, alloc_parent_domain) ||
	    !v->alloc_td || !v->dealloc_td || !v->alloc_parent_domain) {
		log_info("%s: no thread domains (%s); the driver places QPs",
			 u->ctx->ibv->device->name, strerror(EOPNOTSUPP));
		return;
	}
	u->alloc_td = v->alloc_td;
	u->dealloc_td = v->dealloc_td;
	u->alloc_parent_domain = v->alloc_parent_domain;
	v->alloc_td = hook_alloc_td;
	v->alloc_parent_domain = hook_alloc_parent_domain;
	u->ctx->ibv->ops.post_recv = uar_post_recv;
	u->hooked = true;
}

void uar_attach(struct ctx *c)
{
	bool moves = shim.cfg.policy != RNICE_POLICY_OBSERVE && shim.cfg.uar != RNICE_UAR_DRIVER;
	void *init_obj;
	struct uar *u;

	if (!is_mlx5(c->ibv))
		return;
	init_obj = elf_behind("mlx5dv_init_obj", "MLX5_1.2");
	u = init_obj ? calloc(1, sizeof(*u)) : NULL;
	if (!u)
		return;
	u->ctx = c;
	u->init_obj = (int (*)(struct mlx5dv_obj *, uint64_t))init_obj;
	if (moves) {
		u->plan.mode = shim.cfg.uar;
		u->plan.cpus = node_cpus_near(c->ibv->device);
		hook(u);
	}
	u->next = uar_all;
	uar_all = u;
	c->uar = u;
}

void uar_unhook(struct ctx *c)
{
	struct verbs_context *v = verbs_get_ctx(c->ibv);

	if (!c->uar || !c->uar->hooked)
		return;
	c->ibv->ops.post_recv = c->ops.post_recv;
	v->alloc_td = c->uar->alloc_td;
	v->alloc_parent_domain = c->uar->alloc_parent_domain;
}

static uint32_t pages_of(uint32_t doors)
{
	return (doors + DOORS_PER_PAGE - 1) / DOORS_PER_PAGE;
}

/* QPs that the program left keep their thread domains busy: those go with the context. */
static void free_doors(struct uar *u)
{
	for (uint32_t i = 0; i < u->plan.doors; i++) {
		u->dealloc_td(u->door[i]->td);
		free(u->door[i]);
	}
	rnice_doorbells_unreserve(u->ctx->dev->port, pages_of(u->plan.doors) * DOORS_PER_PAGE);
}

void uar_detach(struct ctx *c)
{
	struct uar **p, *u = c->uar;

	if (!u)
		return;
	for (p = &uar_all; *p; p = &(*p)->next)
		if (*p == u) {
			*p = u->next;
			break;
		}
	free_doors(u);
	uar_free_regs(u);
	c->uar = NULL;
	free(u);
}

/* ---- doors ---- */

static bool half_page_left(const struct uar *u)
{
	return u->plan.doors % DOORS_PER_PAGE != 0;
}

/* How many doors could be added, as far as is known without looking for the dead: never 0. */
static uint32_t doors_left(const struct uar *u)
{
	uint32_t left = rnice_doorbells_left(u->ctx->dev->port, (uint32_t)shim.cfg.uar_budget);

	left = left / DOORS_PER_PAGE * DOORS_PER_PAGE + half_page_left(u);
	return left ? left : 1;
}

/* Exhausted, here or on the host: what there is must do. */
COLD static void tell_exhausted(struct uar *u, const char *why)
{
	if (!u->said)
		log_info("%s: no thread domain beyond %u (%s); further QPs share or go where the "
			 "driver puts them",
			 u->ctx->ibv->device->name, u->plan.doors, why);
	u->said = true;
}

/* NULL: errno tells. */
static struct door *new_door(struct uar *u)
{
	struct ibv_td_init_attr attr = {0};
	struct door *d = aligned_alloc(sizeof(*d), sizeof(*d));

	if (!d)
		return NULL;
	memset(d, 0, sizeof(*d));
	d->td = u->alloc_td(u->ctx->ibv, &attr);
	if (d->td)
		return d;
	free(d);
	return NULL;
}

/* One more in u->door[]? */
static bool open_door(struct uar *u)
{
	struct rnice_port *port = u->ctx->dev->port;
	bool new_page = !half_page_left(u);
	struct door *d;

	if (new_page &&
	    !rnice_doorbells_reserve(port, DOORS_PER_PAGE, (uint32_t)shim.cfg.uar_budget)) {
		tell_exhausted(u, "RNICE_UAR_BUDGET is used up");
		return false;
	}
	d = new_door(u);
	if (!d) {
		tell_exhausted(u, strerror(errno));
		if (new_page)
			rnice_doorbells_unreserve(port, DOORS_PER_PAGE);
		return false;
	}
	d->index = (int)u->plan.doors;
	u->door[u->plan.doors++] = d;
	return true;
}

/* NULL: the driver shall choose. */
static struct door *choose(struct uar *u)
{
	unsigned me = uar_thread();
	int i = rnice_uar_pick(&u->plan, me, doors_left(u));

	if (i == RNICE_UAR_NEW)
		i = open_door(u) ? (int)u->plan.doors - 1 : rnice_uar_pick(&u->plan, me, 0);
	return i < 0 ? NULL : u->door[i];
}

/* ---- creating QPs ---- */

/* Those whose every use of the locks is known. */
static bool movable(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
	       type == IBV_QPT_XRC_SEND;
}

bool uar_allows(const struct mlx5dv_qp_init_attr *attr)
{
	const uint64_t plain =
		MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;

	if (!attr || !attr->comp_mask)
		return true;
	return !(attr->comp_mask & ~plain) &&
	       !(attr->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS &&
		 attr->create_flags & MLX5DV_QP_CREATE_SIG_PIPELINING);
}

/* False: no parent domain. */
static bool enter(struct qp *q, struct ibv_pd *pd, struct door *d)
{
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = d->td};

	q->uar.parent = q->ctx->uar->alloc_parent_domain(q->ctx->ibv, &attr);
	if (!q->uar.parent)
		return false;
	q->uar.door = d;
	q->uar.pd = pd;
	return true;
}

struct ibv_pd *uar_place(struct qp *q, struct ibv_pd *pd, enum ibv_qp_type type)
{
	struct uar *u = q->ctx->uar;
	struct door *d;

	if (!u || !u->hooked || u->programs || !pd || !movable(type))
		return pd;
	uar_sweep_threads();
	d = choose(u);
	return d && enter(q, pd, d) ? q->uar.parent : pd;
}

static void undo_place(struct qp *q)
{
	if (q->uar.parent)
		real()->ibv_dealloc_pd(q->uar.parent);
	q->uar.parent = NULL;
	q->uar.door = NULL;
}

/* The QP has no locks of its own: without ours it must not reach the program. */
static bool take_over(struct qp *q, bool wr_api)
{
	if (!q->uar.door && !wr_api)
		return true;
	if (table_put(&uar_placed, table_ptr_key(q->ibv), q))
		return !q->uar.door;
	if (wr_api)
		uar_patch_wr(q);
	if (q->uar.door) {
		q->ibv->pd = q->uar.pd;
		q->real_post = uar_post_send;
	}
	return true;
}

static void destroy_again(struct qp *q)
{
	uar_destroy_begin(q);
	real()->ibv_destroy_qp(q->ibv);
	undo_place(q);
	errno = ENOMEM;
}

bool uar_made(struct qp *q, struct ibv_qp *ibv, bool wr_api)
{
	struct uar *u = q->ctx->uar;

	if (!ibv)
		undo_place(q);
	if (!ibv || !u)
		return true;
	q->ibv = ibv;
	if (!take_over(q, wr_api)) {
		destroy_again(q);
		return false;
	}
	store_relaxed(&q->uar.maker, (uint8_t)uar_thread());
	rnice_uar_placed(&u->plan, q->uar.door ? q->uar.door->index : RNICE_UAR_NATIVE,
			 load_relaxed(&q->uar.maker));
	q->uar.placed = true;
	uar_find_reg(q);
	return true;
}

/* ---- destroying them ---- */

/* libmlx5 finds its parent domain by qp->pd. */
void uar_destroy_begin(struct qp *q)
{
	if (q->uar.parent)
		q->ibv->pd = q->uar.parent;
}

void uar_destroy_end(struct qp *q, bool destroyed)
{
	if (!q->uar.parent)
		return;
	if (destroyed)
		real()->ibv_dealloc_pd(q->uar.parent);
	else
		q->ibv->pd = q->uar.pd;
}

void uar_forget(struct qp *q)
{
	struct uar *u = q->ctx->uar;

	if (!u || !q->uar.placed)
		return;
	table_del(&uar_placed, table_ptr_key(q->ibv), q);
	rnice_uar_gone(&u->plan, q->uar.door ? q->uar.door->index : RNICE_UAR_NATIVE);
	uar_drop_reg(q);
}

bool uar_release(struct qp *q)
{
	bool alone = !q->uar.door;

	if (alone)
		uar_unpatch_wr(q);
	uar_forget(q);
	if (!alone)
		destroy_again(q);
	return alone;
}
