# SPDX-License-Identifier: BSD-2-Clause
# rnice: nice(1) for RDMA NICs. `make help` lists the targets.
.DEFAULT_GOAL := all

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
BUILD  ?= build
CFLAGS ?= -O2 -g
SAN    ?=

# Quiet unless V=1.
Q   := $(if $(filter 1,$(V)),,@)
say  = $(if $(filter 1,$(V)),:,printf '  %-5s %s\n' $(1) $(2));

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wvla
FLAGS = -std=gnu11 -D_GNU_SOURCE $(WARN) -fPIC -fvisibility=hidden -MMD -MP -I. $(CFLAGS) $(SAN)

# ---- library and command -------------------------------------------------------------------

CORE_SRC := $(wildcard scheduler/*.c config/*.c) telemetry/histogram.c
LIB_SRC  := $(wildcard interpose/*.c) $(CORE_SRC)
CMD_SRC  := $(wildcard telemetry/*.c scheduler/*.c config/*.c)
objects   = $(patsubst %.c,$(BUILD)/%.o,$(1))

all: $(BUILD)/librnice.so $(BUILD)/rnice man ## build the library, the command and the man pages

$(BUILD)/%.o: %.c | headers
	@mkdir -p $(@D)
	$(Q)$(call say,CC,$<) $(CC) $(FLAGS) -c -o $@ $<

# They run before any sanitizer's run-time library is ready: its own start-up calls dlsym().
$(patsubst %,$(BUILD)/interpose/%.o,deepbind dl dlentry elf): override SAN :=

LINK_LIB = $(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -shared -Wl,-soname,librnice.so -Wl,-z,relro \
	-Wl,-z,now -Wl,-Bsymbolic-functions \
	-Wl,--version-script=interpose/librnice.map -o $@ $(filter %.o,$^)
$(BUILD)/librnice.so: $(call objects,$(LIB_SRC)) interpose/librnice.map
	$(LINK_LIB)

$(BUILD)/rnice: $(call objects,$(CMD_SRC))
	$(Q)$(call say,LINK,$@) $(CC) $(FLAGS) -o $@ $^

# A fresh machine gets its compiler and headers here; one that has them is not touched.
headers:
	@printf '#include <infiniband/verbs.h>\n#include <numa.h>\n#include <uthash.h>\n' | \
		$(CC) -E -x c - >/dev/null 2>&1 || scripts/setup

setup: ## install every Debian package that the other targets need
	@scripts/setup

# ---- man pages -----------------------------------------------------------------------------

MAN := $(BUILD)/man/rnice.1 $(BUILD)/man/librnice.7
man: $(MAN) ## the man pages, with the settings filled in from their table
$(BUILD)/man/rnice.1: telemetry/rnice.1.in $(BUILD)/rnice
$(BUILD)/man/librnice.7: config/librnice.7.in $(BUILD)/rnice
$(MAN):
	@mkdir -p $(@D)
	$(Q)$(call say,MAN,$@) $(BUILD)/rnice man $< >$@.tmp && mv $@.tmp $@

# ---- tests ---------------------------------------------------------------------------------

TEST_PROGRAMS :=
include tests/programs.mk
include bench/programs.mk

test-programs: $(TEST_PROGRAMS) ## what the tests run, scripts/emulate included

check: setup all test-programs ## every test, as CI runs them (VM included)
	@BUILD=$(BUILD) tests/run

# The sanitizer builds keep to themselves; the suites that need no VM run on them.
check-asan: setup ## unit tests, and integration programs on the emulator, under AddressSanitizer
	@tests/sanitized address $(BUILD)-asan
check-ubsan: setup ## the same under UndefinedBehaviorSanitizer
	@tests/sanitized undefined $(BUILD)-ubsan
check-tsan: setup ## race programs and integration programs under ThreadSanitizer
	@tests/sanitized thread $(BUILD)-tsan
check-valgrind: setup ## integration programs on the emulated device under memcheck
	@tests/sanitized valgrind $(BUILD)-valgrind

# Not in CI: ten minutes each, on the emulated device.
SOAK ?= 10
soak: setup ## random work requests for SOAK minutes (10) under each sanitizer
	@tests/sanitized address $(BUILD)-asan $(SOAK)
	@tests/sanitized undefined $(BUILD)-ubsan $(SOAK)
	@tests/sanitized thread $(BUILD)-tsan $(SOAK)

# Not in CI: it takes packages that nothing else needs.
check-aarch64: setup ## look-ups by dlsym on aarch64, cross-compiled and run by qemu-user
	@BUILD=$(BUILD) tests/dl/aarch64

lint: setup lint-run ## clang-format, cppcheck, shellcheck, man page lint
lint-run:
	@tests/lint

format: ## bring all C files into the house style
	@git ls-files '*.c' '*.h' | xargs clang-format -i

# ---- measuring -----------------------------------------------------------------------------

demo: setup all test-programs ## native against rnice and the baselines, in the testbed
	@scripts/compare-perftest --output $(BUILD)/demo --targets || test $$? -eq 1 # missed: it said so

bench: setup all bench-programs ## what the library costs per call and per program; doorbell locks
	@bench/overhead.py --build $(BUILD) || test $$? -eq 1 # missed: it said so
	@bench/mlx5_overhead.py --build $(BUILD) || test $$? -eq 1
	@bench/programs.py --build $(BUILD)
	@bench/contention.py --build $(BUILD)

# ---- the rest ------------------------------------------------------------------------------

install: all ## into $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/man/man7
	install -m 755 $(BUILD)/rnice $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(BUILD)/librnice.so $(DESTDIR)$(LIBDIR)/
	install -m 644 $(BUILD)/man/rnice.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 $(BUILD)/man/librnice.7 $(DESTDIR)$(PREFIX)/share/man/man7/

uninstall: ## what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/rnice $(DESTDIR)$(LIBDIR)/librnice.so \
		$(DESTDIR)$(PREFIX)/share/man/man1/rnice.1 $(DESTDIR)$(PREFIX)/share/man/man7/librnice.7

clean: ## remove everything that was built
	$(Q)rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-ubsan $(BUILD)-tsan $(BUILD)-valgrind $(BUILD)-aarch64

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

-include $(shell test -d $(BUILD) && find $(BUILD) -type f -name '*.d')
.PHONY: all headers setup man test-programs bench-programs check check-asan check-ubsan check-tsan \
	check-valgrind check-aarch64 soak lint lint-run format demo bench install uninstall clean help
