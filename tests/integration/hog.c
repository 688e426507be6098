/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hog: a bulk program. Keeps @depth messages of @size under way to the memory that a server lends,
 * and counts the bytes that completed.
 */
#include "peer_util.h"

#include <stdio.h>
#include <string.h>

static uint64_t size = 1u << 20, depth = 16, duration = 10, start_delay, tos;
static const char *path = "/tmp/rnice-test.sock", *op_name = "write", *api_name = "send",
		  *poll_name = "cq";
static bool event, verify;

static enum ibv_wr_opcode op_of(const char *name)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode op;
	} ops[] = {{"write", IBV_WR_RDMA_WRITE},
		   {"read", IBV_WR_RDMA_READ},
		   {"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		   {"send", IBV_WR_SEND}};

	for (size_t i = 0; i < VU_ARRAY(ops); i++)
		if (!strcmp(name, ops[i].name))
			return ops[i].op;
	vu_die("--op is write, read, write-imm or send, not \"%s\"", name);
}

static void post(struct peer_client *c, enum ibv_wr_opcode op)
{
	struct ibv_sge sge = {(uintptr_t)c->mem.p, (uint32_t)size, c->mem.mr->lkey};
	struct ibv_send_wr wr = vu_wr(op, &sge, 1, IBV_SEND_SIGNALED);

	vu_wr_remote(&wr, (void *)(uintptr_t)c->grant.mem, c->grant.rkey);
	peer_post(c, &wr);
}

/* The number of messages that completed before @end; all are complete on return. */
static uint64_t pump(struct peer_client *c, enum ibv_wr_opcode op, double end)
{
	uint64_t under_way = 0, done = 0;
	struct ibv_wc wc[16];
	bool more = true;
	uint64_t k;

	while (more || under_way) {
		for (; more && under_way < depth; under_way++)
			post(c, op);
		k = (uint64_t)peer_wait(c, wc, 16);
		under_way -= k;
		more = vu_now() < end && !peer_stop;
		if (more)
			done += k;
	}
	return done;
}

/* Read back what was written, on the same QP. */
static void check_bytes(struct peer_client *c, enum ibv_wr_opcode op)
{
	uint64_t before, after;

	if (op != IBV_WR_RDMA_WRITE && op != IBV_WR_RDMA_WRITE_WITH_IMM)
		return;
	before = vu_hash(c->mem.p, size, 0);
	memset(c->mem.p, 0, size);
	pump(c, IBV_WR_RDMA_READ, 0);
	after = vu_hash(c->mem.p, size, 0);
	vu_check(before == after, "the target has other bytes than were written");
}

int main(int argc, char **argv)
{
	const struct vu_opt opts[] = {
		{"socket", VU_OPT_STR, &path, "unix socket of the server"},
		{"size", VU_OPT_NUM, &size, "bytes of one message"},
		{"depth", VU_OPT_NUM, &depth, "messages under way"},
		{"op", VU_OPT_STR, &op_name, "write, read, write-imm or send"},
		{"duration", VU_OPT_NUM, &duration, "seconds"},
		{"start-delay", VU_OPT_NUM, &start_delay, "milliseconds to wait when connected"},
		{"event", VU_OPT_FLAG, &event, "sleep for completions instead of polling"},
		{"verify", VU_OPT_FLAG, &verify, "in the end, read back what was written"},
		{"api", VU_OPT_STR, &api_name, "how to post: send, wr (ibv_wr_*) or mixed"},
		{"poll", VU_OPT_STR, &poll_name, "how to poll: cq, ex (ibv_start_poll) or mixed"},
		{"tos", VU_OPT_NUM, &tos, "traffic class of the connection"},
	};
	struct peer_need need;
	struct peer_client c;
	enum ibv_wr_opcode op;
	double start, cpu, took;
	uint64_t done;

	vu.timeout = 600;
	vu_parse(argc, argv, "hog", "a bulk program", opts, VU_ARRAY(opts));
	op = op_of(op_name);
	need = (struct peer_need){.socket = path,
				  .bytes = size,
				  .depth = (unsigned int)depth,
				  .traffic_class = (uint8_t)tos,
				  .event = event,
				  .api = api_name,
				  .poll = poll_name};
	if (op == IBV_WR_SEND || op == IBV_WR_RDMA_WRITE_WITH_IMM)
		need.recvs = 2 * (uint32_t)depth;
	if (op == IBV_WR_SEND)
		need.recv_len = (uint32_t)size;
	peer_connect(&c, &need);
	peer_stop_on_sigterm();
	vu_fill(c.mem.p, size, vu.seed);
	vu_sleep((double)start_delay / 1000);
	vu_at("pumping");
	start = vu_now();
	printf("first post at %.6f (CLOCK_MONOTONIC, seconds)\n", start);
	fflush(stdout);
	cpu = vu_cpu_time();
	done = pump(&c, op, start + (double)duration);
	cpu = vu_cpu_time() - cpu;
	took = vu_now() - start; /* the last messages are not counted, see pump() */
	took = took < (double)duration ? took : (double)duration;
	if (verify)
		check_bytes(&c, op);
	peer_close(&c);
	return vu_pass("%.2f MB/s, %lu messages of %lu bytes, %.0f %% CPU",
		       (double)(done * size) / 1e6 / took, (unsigned long)done, (unsigned long)size,
		       100 * cpu / took);
}
