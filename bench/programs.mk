# SPDX-License-Identifier: BSD-2-Clause
# What bench/*.py run; included by the Makefile.

NULLVERBS := $(BUILD)/bench/null/libibverbs.so.1
PROBE     := $(BUILD)/bench/overhead_probe

# In a folder of its own: whoever puts that on LD_LIBRARY_PATH gets nothing else with it.
$(NULLVERBS): $(BUILD)/bench/nullverbs.o bench/nullverbs.map
	@mkdir -p $(@D)
	$(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=bench/nullverbs.map -o $@ $(filter %.o,$^)

$(PROBE): $(BUILD)/bench/overhead_probe.o $(NULLVERBS)
	$(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -o $@ $^

# On the emulated ConnectX.
MLX5_PROBES := $(BUILD)/bench/contention_probe $(BUILD)/bench/mlx5_probe
$(MLX5_PROBES): %: %.o $(BUILD)/bench/mlx5_util.o
	$(LINK) -libverbs -lpthread

bench-programs: $(NULLVERBS) $(PROBE) $(MLX5_PROBES) $(EMU)
