# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
# What tests/dl/run and tests/dl/aarch64 share. Sourced; wants $bin, $LIB and a function
# lookups PRELOADED, which runs tests/dl/lookups with these libraries (separated by colons).
: "${bin:?}" "${LIB:?}"
passed=0 failed=0

ok() {
	echo "ok $1"
	passed=$((passed + 1))
}
fail() {
	echo "FAIL $1: ${2//$'\n'/; }"
	failed=$((failed + 1))
}
same() { # NAME WANTED GOT
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		fail "$1" "$(diff <(echo "$2") <(echo "$3") | head -n 8)"
	fi
}

# Look-ups of every kind behind other preloaded libraries, at each place among them.
check_lookups() {
	local native expected one=$bin/chain_one.so two=$bin/chain_two.so hook=$bin/hook.so saw
	native=$(lookups "$one:$two")
	# All is as natively, but that three look-ups give the wrapper.
	expected=$(sed -E '/^wrapped verb/s/libibverbs\.so\.1/librnice.so/' <<<"$native")
	saw=$'\nhook saw many'
	case $native in
	*"frob of one, a next, no versioned"*"frob of two, no next"*) ok "the native look-ups are sane" ;;
	*) fail "the native look-ups are sane" "$native" ;;
	esac
	same "look-ups and dlerror, rnice first" "$expected" "$(lookups "$LIB:$one:$two")"
	same "look-ups and dlerror, rnice between" "$expected" "$(lookups "$one:$LIB:$two")"
	same "look-ups and dlerror, rnice last" "$expected" "$(lookups "$one:$two:$LIB")"
	export HOOK_REPORT=1
	same "another dlsym wrapper alone" "$native$saw" "$(lookups "$hook:$one:$two")"
	same "another dlsym wrapper before rnice" "$expected$saw" "$(lookups "$hook:$LIB:$one:$two")"
	same "another dlsym wrapper behind rnice" "$expected$saw" "$(lookups "$LIB:$hook:$one:$two")"
	unset HOOK_REPORT
}
