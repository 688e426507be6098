# SPDX-License-Identifier: BSD-2-Clause
# The programs that tests and benches run; included by the Makefile.

LINK = $(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -o $@ $(filter %.c %.o %.a,$^)

# Unit tests: one Criterion program per tests/unit/test_*.c, linked with all that needs no NIC.
UNIT_OBJ := $(call objects,$(CORE_SRC) interpose/fast.c interpose/plan.c interpose/table.c)
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

# Libraries for tests, each with one file compiled otherwise: without the lock of a doorbell register,
# to show that the race test can fail; and one in which class auto changes its mind all the time.
UNLOCKED := $(BUILD)/tests/uar/librnice-unlocked.so
FLIP     := $(BUILD)/tests/librnice-flip.so
variant  = $1: $(2:%.c=$1.%.o) $(filter-out $(2:%.c=$(BUILD)/%.o),$(call objects,$(LIB_SRC))) interpose/librnice.map
$(UNLOCKED).%.o: %.c | headers
	@mkdir -p $(@D)
	$(Q)$(call say,CC,$<) $(CC) $(FLAGS) -DRNICE_TEST_WITHOUT_DOOR_LOCK -c -o $@ $<
$(FLIP).%.o: %.c | headers
	@mkdir -p $(@D)
	$(Q)$(call say,CC,$<) $(CC) $(FLAGS) -DRNICE_TEST_FLIP -c -o $@ $<
$(call variant,$(UNLOCKED),interpose/uar_post.c)
	$(LINK_LIB)
$(call variant,$(FLIP),interpose/post.c)
	$(LINK_LIB)

# Own verbs programs for the testbed and the emulated device.
IT_PARTS = $(call objects,$(wildcard tests/integration/*_util.c))
it_objects = $(call objects,$(wildcard tests/integration/$(1).c tests/integration/$(1)_*.c))
IT := $(patsubst %.c,$(BUILD)/%,$(filter-out %_util.c,$(foreach p,$(wildcard tests/integration/*.c), \
	$(if $(findstring _,$(notdir $(p))),,$(p)))))
.SECONDEXPANSION:
$(IT): $(BUILD)/tests/integration/%: $$(call it_objects,%) $$(IT_PARTS)
	$(LINK) -libverbs -lrdmacm -lpthread -lm

# How programs find verbs functions: one that looks them up, modules, other preloaded libraries.
DL := $(addprefix $(BUILD)/tests/dl/,loader contexts lookups insider module.so hook.so chain_one.so \
	chain_two.so fake_mlx5.so)
# What another object shall find in a library must be seen outside of it.
$(filter %.so,$(DL)): override CFLAGS += -fvisibility=default
DL_PARTS := $(call objects,tests/dl/transfer.c)
$(BUILD)/tests/dl/loader: $(BUILD)/tests/dl/loader.o $(DL_PARTS)
	$(LINK)
$(BUILD)/tests/dl/lookups: $(BUILD)/tests/dl/lookups.o
	$(LINK)
$(BUILD)/tests/dl/contexts: $(BUILD)/tests/dl/contexts.o $(DL_PARTS)
	$(LINK) -libverbs -lmlx5
$(BUILD)/tests/dl/insider: $(BUILD)/tests/dl/insider.o $(DL_PARTS) $(BUILD)/tests/dl/fake_mlx5.so
	$(LINK) $(BUILD)/tests/dl/fake_mlx5.so -Wl,-rpath,'$$ORIGIN' -libverbs
$(BUILD)/tests/dl/module.so: $(BUILD)/tests/dl/module.o $(DL_PARTS)
	$(LINK) -shared -libverbs
$(BUILD)/tests/dl/hook.so: $(BUILD)/tests/dl/hook.o
	$(LINK) -shared
$(BUILD)/tests/dl/fake_mlx5.so: $(BUILD)/tests/dl/fake_mlx5.o
	$(LINK) -shared -Wl,-soname,fake_mlx5.so -Wl,--version-script=tests/dl/fake_mlx5.map
$(BUILD)/tests/dl/chain_%.so: tests/dl/chain.c
	@mkdir -p $(@D)
	$(LINK) -shared -DWHO='"$*"'

# A provider that complains about what it took.
COMPLAINS := $(BUILD)/tests/emulated/complains.so
$(COMPLAINS): override CFLAGS += -fvisibility=default
$(COMPLAINS): $(BUILD)/tests/emulated/complains.o
	$(LINK) -shared -Wl,--version-script=tests/emulated/complains.map -ldl

# The sanitizer builds test the library on an emulated device that is built without (tests/sanitized).
TEST_PROGRAMS += $(if $(SAN),,$(EMU) $(DL) $(COMPLAINS)) $(UNLOCKED) $(FLIP) $(IT)
