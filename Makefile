# SPDX-License-Identifier: BSD-2-Clause
# rnice: nice(1) for RDMA NICs. `make help` lists the targets.
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = @$(if $(filter 1,$(V)),:,printf '  %-7s %s\n' $(1) $(2))

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
BUILD  ?= build
CFLAGS ?= -O2 -g
WARN   := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE $(WARN) -fvisibility=hidden -fPIC -MMD -MP -I. $(CFLAGS) $(SAN)

all: $(BUILD)/librnice.so $(BUILD)/rnice

LIB_SRC := $(wildcard interpose/*.c scheduler/*.c config/*.c telemetry/counter*.c telemetry/histogram.c)
CMD_SRC := $(filter-out telemetry/histogram.c telemetry/counter%.c,$(wildcard telemetry/*.c)) \
	   telemetry/histogram.c $(wildcard scheduler/*.c config/*.c)
obj = $(patsubst %.c,$(BUILD)/%.o,$(1))

$(BUILD)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/librnice.so: $(call obj,$(LIB_SRC)) interpose/librnice.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,librnice.so -Wl,--version-script=interpose/librnice.map \
		-Wl,-z,now -Wl,-z,relro -o $@ $(call obj,$(LIB_SRC))

$(BUILD)/rnice: $(call obj,$(CMD_SRC))
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^

UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
$(BUILD)/tests/unit/%: tests/unit/%.c $(call obj,$(wildcard scheduler/*.c config/*.c telemetry/histogram.c))
	$(call say,TEST,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $(filter %.c %.o,$^) -lcriterion
unit: $(UNIT)

clean:
	$(Q)rm -rf $(BUILD)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all unit clean
