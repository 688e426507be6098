/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the device says about itself: limits, port, GIDs, and the mlx5 answers to GET_CONTEXT.
 *
 * Layouts: ib_uverbs_query_device_resp and friends in rdma/ib_user_verbs.h, mlx5_ib_* in
 * rdma/mlx5-abi.h. The values are those of no particular firmware.
 */
#include <string.h>

#include "emu.h"

static void fill_base(uint32_t dev, struct ib_uverbs_query_device_resp *d)
{
	*d = (struct ib_uverbs_query_device_resp){
		.fw_ver = (22ull << 32) | (31 << 16) | 1014,
		.node_guid = htobe64(dev_guid(dev)),
		.sys_image_guid = htobe64(dev_guid(dev)),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffffffffffff000ull,
		.vendor_id = 0x2c9,
		.vendor_part_id = 4125,
		.max_qp = EMU_QPS - 16,
		.max_qp_wr = 32768,
		.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
				    IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_XRC |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_cq = EMU_CQS - 16,
		.max_cqe = 4194303,
		.max_mr = EMU_MRS - 16,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * EMU_QPS,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = EMU_MRS - 16,
		.max_mcast_grp = EMU_MCASTS,
		.max_mcast_qp_attach = EMU_MCASTS,
		.max_total_mcast_qp_attach = EMU_MCASTS,
		.max_ah = 1 << 20,
		.max_srq = EMU_SRQS - 16,
		.max_srq_wr = 32767,
		.max_srq_sge = 31,
		.max_pkeys = 128,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
}

int dev_query(struct emu_req *r, bool ex)
{
	struct ib_uverbs_ex_query_device_resp resp = {0};
	struct mlx5_ib_query_device_resp drv = {0};

	if (!req_attr(r, UVERBS_ATTR_CORE_OUT))
		return ENOSPC; /* libibverbs probes with an empty request */
	fill_base(r->ctx->dev, &resp.base);
	if (!ex)
		return req_out(r, UVERBS_ATTR_CORE_OUT, &resp.base, sizeof(resp.base));
	resp.response_length = sizeof(resp);
	resp.timestamp_mask = UINT64_MAX;
	resp.hca_core_clock = 1000000; /* kHz: completion timestamps are nanoseconds */
	drv.response_length = sizeof(drv);
	req_out(r, UVERBS_ATTR_UHW_OUT, &drv, sizeof(drv));
	return req_out(r, UVERBS_ATTR_CORE_OUT, &resp, sizeof(resp));
}

static int get_context(struct emu_req *r)
{
	struct mlx5_ib_alloc_ucontext_resp resp = {
		.qp_tab_size = 1 << 18,
		.bf_reg_size = 512,
		.tot_bfregs = env_size("MLX5EMU_STATIC_BFREGS", 0), /* 0: dynamic UARs */
		.cache_line_size = 64,
		.max_sq_desc_sz = EMU_SWQE_MAX,
		.max_rq_desc_sz = EMU_RWQE_MAX,
		.max_send_wqebb = 32768,
		.max_recv_wr = 32768,
		.max_srq_recv_wr = 32767,
		.num_ports = 1,
		.response_length = sizeof(resp),
		.cqe_version = 1,
		.cmds_supp_uhw =
			MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
		.num_dyn_bfregs = 1024,
	};
	uint32_t vectors = 4;
	uint64_t core = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;

	memcpy(r->ctx->uctx_resp, &resp, sizeof(resp));
	nic_start();
	req_out(r, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	req_out(r, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &core, sizeof(core));
	return req_out(r, UVERBS_ATTR_UHW_OUT, &resp, sizeof(resp));
}

/* For ibv_import_device(): a second user of an open file. */
static int query_context(struct emu_req *r)
{
	uint32_t vectors = 4;
	uint64_t core = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;

	req_out(r, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	req_out(r, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &core, sizeof(core));
	return req_out(r, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, r->ctx->uctx_resp,
		       sizeof(struct mlx5_ib_alloc_ucontext_resp));
}

static int query_port(struct emu_req *r)
{
	struct ib_uverbs_query_port_resp_ex resp = {0};
	struct ib_uverbs_query_port_resp *p = &resp.legacy_resp;
	bool eth = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET;

	if ((uint8_t)req_u64(r, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 0) != 1)
		return EINVAL;
	*p = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP | (eth ? IB_UVERBS_PCF_IP_BASED_GIDS : 0),
		.max_msg_sz = 1u << 30,
		.gid_tbl_len = EMU_GIDS,
		.pkey_tbl_len = 1,
		.lid = eth ? 0 : dev_lid(r->ctx->dev),
		.sm_lid = eth ? 0 : 1,
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = self.seg->cfg.mtu,
		.max_vl_num = 1,
		.subnet_timeout = eth ? 0 : 18,
		.active_width = 2,
		.active_speed = 32,
		.phys_state = 5,
		.link_layer = self.seg->cfg.link,
		.flags = eth ? IB_UVERBS_QPF_GRH_REQUIRED : 0,
	};
	return req_out(r, UVERBS_ATTR_QUERY_PORT_RESP, &resp, sizeof(resp));
}

static void gid_entry(uint32_t dev, uint32_t index, struct ib_uverbs_gid_entry *e)
{
	bool eth = self.seg->cfg.link == IBV_LINK_LAYER_ETHERNET;

	memset(e, 0, sizeof(*e));
	dev_gid(dev, index, (uint8_t *)e->gid);
	e->gid_index = index;
	e->port_num = 1;
	e->gid_type = !eth	  ? IB_UVERBS_GID_TYPE_IB
		      : index & 1 ? IB_UVERBS_GID_TYPE_ROCE_V2
				  : IB_UVERBS_GID_TYPE_ROCE_V1;
	e->netdev_ifindex = eth ? 1 : 0;
}

static int query_gid_entry(struct emu_req *r)
{
	uint32_t port = req_u64(r, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 0);
	uint32_t index = req_u64(r, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0);
	struct ib_uverbs_gid_entry e;

	if (port != 1)
		return EINVAL;
	if (index >= EMU_GIDS)
		return index < 256 ? ENODATA : EINVAL;
	gid_entry(r->ctx->dev, index, &e);
	return req_out(r, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &e, sizeof(e));
}

static int query_gid_table(struct emu_req *r)
{
	struct ib_uverbs_attr *a = req_attr(r, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
	uint64_t size = req_u64(r, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 0), n = EMU_GIDS;
	struct ib_uverbs_gid_entry e;
	uint64_t i;

	if (!a || size < sizeof(e) || req_u64(r, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0))
		return EINVAL;
	if (a->len / size < n)
		return EINVAL; /* the caller's table is too small */
	for (i = 0; i < n; i++) {
		gid_entry(r->ctx->dev, i, &e);
		memcpy((char *)(uintptr_t)a->data + i * size, &e, sizeof(e));
	}
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return req_out(r, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &n, sizeof(n));
}

int dev_method(struct emu_req *r, uint16_t method)
{
	switch (method) {
	case UVERBS_METHOD_INVOKE_WRITE:
		return write_cmd(r, req_u64(r, UVERBS_ATTR_WRITE_CMD, UINT32_MAX));
	case UVERBS_METHOD_QUERY_PORT:
		return query_port(r);
	case UVERBS_METHOD_GET_CONTEXT:
		return get_context(r);
	case UVERBS_METHOD_QUERY_CONTEXT:
		return query_context(r);
	case UVERBS_METHOD_QUERY_GID_TABLE:
		return query_gid_table(r);
	case UVERBS_METHOD_QUERY_GID_ENTRY:
		return query_gid_entry(r);
	default:
		return EOPNOTSUPP;
	}
}

/* DEVX commands of "Adapters Programmer's Reference Manual": only QUERY_HCA_CAP, all zero. */
int devx_method(struct emu_req *r, uint16_t object, uint16_t method)
{
	struct ib_uverbs_attr *out = req_attr(r, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
	uint8_t in[4] = {0};

	if (object != MLX5_IB_OBJECT_DEVX || method != MLX5_IB_METHOD_DEVX_OTHER || !out)
		return EOPNOTSUPP;
	req_in(r, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in, sizeof(in));
	if (in[0] != 0x01 || in[1] != 0x00) /* opcode 0x100, big-endian */
		return EOPNOTSUPP;
	memset((void *)(uintptr_t)out->data, 0, out->len);
	out->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}
