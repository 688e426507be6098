/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Behind rnice, before libibverbs: a provider that takes a WR with a fence and returns an error all
 * the same, as librxe and libsiw do when the kernel refuses their doorbell. *bad_wr is NULL then.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static _Atomic unsigned int complaints;
static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = real_post(qp, wr, bad);

	if (err || !(wr->send_flags & IBV_SEND_FENCE))
		return err;
	*bad = NULL;
	complaints++;
	return EIO;
}

/* Nobody complained: nothing was tested. */
static __attribute__((destructor)) void say(void)
{
	fprintf(stderr, "complained %u times\n", complaints);
}

/* rdma-core's own is not declared for programs. */
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);

struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data)
{
	struct ibv_context *(*open_device)(struct ibv_device *, void *) =
		(struct ibv_context * (*)(struct ibv_device *, void *))
			dlvsym(RTLD_NEXT, "verbs_open_device", "IBVERBS_PRIVATE_34");
	struct ibv_context *ibv = open_device(device, private_data);

	if (ibv) {
		real_post = ibv->ops.post_send;
		ibv->ops.post_send = post;
	}
	return ibv;
}
