# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Own programs on the emulated ConnectX, natively and under rnice: the same results. Sourced by suites that
# have set LIB and FLIP (the libraries), BUILD, and what tests/jobs.sh wants.
# shellcheck source=tests/jobs.sh
source tests/jobs.sh
dev=mlx5_ # what device names start with

program() { # program LOG MODE NAME ARGS...
	local log=$1 mode=$2 pre=()
	shift 2
	case $mode in
	native) mode='' ;;
	flip) mode=RNICE_CLASS=auto pre=(--preload "$FLIP") ;;
	*) pre=(--preload "$LIB${BEHIND:+:$BEHIND}") ;;
	esac
	# shellcheck disable=SC2086 # a mode is words
	env RNICE_SEGMENT="$log.segment" $mode timeout -k 5 120 scripts/emulate --devices 2 --name "$dev" "${pre[@]}" -- \
		"$BUILD/tests/integration/$1" "${@:2}" --dev "${dev}0" --peer-dev "${dev}1" --gid 0 \
		--timeout 100 --log "$log" >"$log.out" 2>&1 </dev/null
}

# The native log is made once, by whoever needs it first.
native() { # native LOG NAME ARGS...
	local rc
	exec 9>"$1.lock"
	flock 9
	[ -e "$1.ended" ] || {
		program "$@" 9>&-
		echo $? >"$1.ended"
	}
	rc=$(<"$1.ended")
	exec 9>&-
	return "$rc"
}

compare() { # compare MODE NAME ARGS...
	local mode=$1 what="${*:2} [$1]" native log
	shift
	native="$work/$(tr -cd 'a-zA-Z0-9-' <<<"$*")"
	log="$native.$(tr -cd 'a-zA-Z0-9' <<<"$mode$dev")"
	if ! native "$native" native "$@"; then
		echo "FAIL $what: its native run: $(tail -n 2 "$native.out")"
	elif ! program "$log" "$mode" "$@"; then
		echo "FAIL $what: $(tail -n 4 "$log.out")"
	elif ! cmp -s <(grep -v '^#' "$native") <(grep -v '^#' "$log"); then
		echo "FAIL $what: another log than natively: $(diff "$native" "$log" | head -n 4)"
	else
		echo "ok $what"
	fi
}

# same MODE NAME ARGS...: MODE is settings of rnice, or flip.
same() {
	job compare "$@"
}
