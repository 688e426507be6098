# SPDX-License-Identifier: BSD-2-Clause
# The programs that tests and benches run; included by the Makefile.

LINK = $(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -o $@ $(filter %.c %.o %.a,$^)

# Unit tests: one Criterion program per tests/unit/test_*.c, linked with all that needs no NIC.
UNIT_OBJ := $(call objects,$(CORE_SRC) interpose/plan.c interpose/table.c)
UNIT     := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c))
$(UNIT): $(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(UNIT_OBJ)
	$(LINK) -lcriterion -lpthread

# Simulation and races of the scheduler: plain programs.
SCHED := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/scheduler/*.c))
$(SCHED): $(BUILD)/tests/scheduler/%: $(BUILD)/tests/scheduler/%.o $(call objects,$(CORE_SRC))
	$(LINK) -lpthread -lm

# `rnice stat` needs a segment to look at.
COMMAND := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/command/*.c))
$(COMMAND): $(BUILD)/tests/command/%: $(BUILD)/tests/command/%.o $(call objects,$(CORE_SRC))
	$(LINK)

TEST_PROGRAMS += $(UNIT) $(SCHED) $(COMMAND)

# The emulated ConnectX, preloaded below libibverbs and libmlx5.
EMU := $(BUILD)/mlx5emu.so
$(EMU): $(call objects,$(wildcard tests/mlx5emu/*.c))
	$(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -shared -o $@ $^ -lpthread -ldl

# Own verbs programs for the testbed and the emulated device.
IT_PARTS = $(call objects,$(wildcard tests/integration/*_util.c))
it_objects = $(call objects,$(wildcard tests/integration/$(1).c tests/integration/$(1)_*.c))
IT := $(patsubst %.c,$(BUILD)/%,$(filter-out %_util.c,$(foreach p,$(wildcard tests/integration/*.c), \
	$(if $(findstring _,$(notdir $(p))),,$(p)))))
.SECONDEXPANSION:
$(IT): $(BUILD)/tests/integration/%: $$(call it_objects,%) $$(IT_PARTS)
	$(LINK) -libverbs -lrdmacm -lpthread -lm

# The sanitizer builds test the library on an emulated device that is built without (tests/sanitized).
TEST_PROGRAMS += $(if $(SAN),,$(EMU)) $(IT)
