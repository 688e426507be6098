# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Checks of a suite side by side: for programs that wait most of the time. Sourced by suites, which have
# set work (a folder of their own), passed and failed.
: >"${work:?}/results"

# A token in a pipe for each place: as many as JOBS says, or one more than there are CPUs.
mkfifo "$work/places"
exec {places}<>"$work/places"
for _ in $(seq "${JOBS:-$(($(nproc) + 1))}"); do
	echo >&"$places"
done

# job COMMAND...: in the background, as soon as there is a place. COMMAND prints "ok ..." or "FAIL ..."
# lines, which come out in one piece when it ends; it bounds its own time.
job() {
	read -ru "$places" _
	{
		job_report "$@"
		echo >&"$places"
	} &
}

# The same for what needs a quiet machine: alone, and here.
job_alone() {
	wait
	job_report "$@"
}

# With few programs, as each takes its time to start in an emulated machine.
job_report() {
	local said
	said=$("$@" 2>&1 {places}>&-)
	[[ $'\n'$said =~ $'\n'(ok|FAIL)' ' ]] || said="FAIL $*: no result: ${said:0:600}"
	{
		flock 9
		printf '%s\n' "$said"
		printf '%s\n' "$said" >>"$work/results"
	} 9>"$work/printing"
}

# nap SECONDS: sleep, but starts no program.
nap() {
	local _
	read -rt "$1" -u "$never" _
	return 0
}
mkfifo "$work/never"
exec {never}<>"$work/never"

# Does somebody listen on TCP PORT? This starts no program, either.
listens() {
	local hex file address state
	printf -v hex ':%04X' "$1"
	for file in /proc/net/tcp /proc/net/tcp6; do
		while read -r _ address _ state _; do
			[[ $address == *"$hex" && $state == 0A ]] && return
		done <"$file"
	done
	return 1
}

# free_port: a TCP port that no other job of this suite has, and nobody listens at.
echo $((20000 + RANDOM % 8000)) >"$work/port"
free_port() {
	local port
	{
		flock 9
		port=$(<"$work/port")
		while listens "$port"; do
			port=$((port + 1))
		done
		echo $((port + 1)) >"$work/port"
	} 9>"$work/port.lock"
	echo "$port"
}

# Waits for all jobs and adds up what they said.
jobs_done() {
	wait
	passed=$((passed + $(grep -c '^ok ' "$work/results")))
	failed=$((failed + $(grep -c '^FAIL ' "$work/results")))
	: >"$work/results"
}
