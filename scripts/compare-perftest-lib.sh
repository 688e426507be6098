# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Running perftest and reading counters; sourced by compare-perftest, whose variables say what to
# run (device, peer, rnice, with_bulk, ...) and where results go (base: the run's files, without
# suffix). What fails says why in the variable why, and returns 1.
#
# How bulk is counted. perftest's own figure is too coarse: one 1 MiB message is 8 % of a second
# at 100 Mbit/s, and its interval is not the one in which the latency program ran. On soft-RoCE
# the responder's next expected PSN is visible (`rdma resource show qp`): per QP it counts the
# packets that arrived in order, exactly; headers, retransmissions and the latency program's
# packets are not in it. It is read when the latency QP's own PSN has begun to move, and when the
# latency program has ended. Other NICs do not show it: there it is the port's port_xmit_data,
# headers and latency program included, from just after the latency client's start.

# shellcheck disable=SC2154,SC2034 # some is set only there, some is used only there

# Open a pipe that nobody ever writes to.
open_never() {
	local pipe
	pipe=$(mktemp -u)
	mkfifo -m 600 "$pipe"
	exec {never}<>"$pipe"
	rm "$pipe"
}

# A tenth of a second without a process of its own, which would disturb what is being measured.
nap() {
	read -rt 0.1 <&"$never" || :
}

# ---- processes: each is started here, known by its id, and ended here ----

declare -A running=() # by process id

# Start ARGUMENTS... in the background with its output in FILE and FILE.err; sets pid. Never
# through a subshell: the id must be the program's own.
spawn() {
	local out=$1
	shift
	"$@" >"$out" 2>"$out.err" </dev/null &
	pid=$!
	running[$pid]=1
}

# Give PID so many TENTHS of a second to end by itself, then make it end; sets ended to its status.
reap() {
	local i signal
	ended=0

	for signal in 0 TERM KILL; do
		kill -s "$signal" "$1" 2>/dev/null || break
		for ((i = 0; i < $2; i++)); do
			kill -0 "$1" 2>/dev/null || break 2
			nap
		done
	done
	# What even KILL does not end hangs in the kernel, and waiting for it would hang here.
	if kill -0 "$1" 2>/dev/null; then
		ended=137
	else
		wait "$1" 2>/dev/null || ended=$?
	fi
	unset "running[$1]"
}

# End what an attempt has left, whatever went wrong in it.
end_all() {
	local p
	for p in "${!running[@]}"; do
		((p == rdma_pid)) || reap "$p" 5
	done
}

# End everything at once.
kill_all() {
	local p
	exec 2>/dev/null # bash would tell of every process that it has to kill
	for p in "${!running[@]}"; do
		kill -KILL "$p" || :
	done
}

# ---- counters ----

# Start the rdma(8) that answers all questions: a new one for each would cost 0.1 s of a CPU.
start_rdma() {
	((rdma_pid == 0)) || reap "$rdma_pid" 10
	coproc rdma_tool { exec stdbuf -oL rdma -j -b - 2>&1; }
	# Copies, because bash takes the coproc's variables away when it ends.
	# shellcheck disable=SC2154 # coproc sets them
	exec {rdma_out}<&"${rdma_tool[0]}" {rdma_in}>&"${rdma_tool[1]}"
	# shellcheck disable=SC2154
	rdma_pid=$rdma_tool_PID
	running[$rdma_pid]=1
}

# Read the counters of this moment into line: "T0 T1 WIRE KIND ...", the times in us. They were
# true at some time between T0 and T1. WIRE is what the network device has sent, in bytes.
counters() {
	local t0=${EPOCHREALTIME/./} wire=0 what

	[[ -z $netdev ]] || read -r wire <"/sys/class/net/$netdev/statistics/tx_bytes"
	if [[ $kind == psn ]]; then
		echo "res show qp link $peer/1" >&"$rdma_in"
		if ! IFS= read -r -t 30 what <&"$rdma_out" || [[ $what != \[*\] ]]; then
			why="rdma(8) does not answer"
			start_rdma # lest this answer is taken for the next
			return 1
		fi
	else
		read -r what <"/sys/class/infiniband/$device/ports/1/counters/port_xmit_data"
	fi
	line="$t0 ${EPOCHREALTIME/./} $wire $kind $what"
}

# Set retries to how often soft-RoCE has begun to send again so far, after a NAK or a time-out.
count_retries() {
	local counter n

	retries=0
	for counter in rcvd_seq_err completer_retry_err; do
		n=/sys/class/infiniband/$device/ports/1/hw_counters/$counter
		[[ ! -r $n ]] || retries=$((retries + $(<"$n")))
	done
}

# Set progress to what server PID has received, in packets (psn), or what the port has sent.
progress_of() {
	local rest

	progress=0
	counters || return 1
	rest=$line
	if [[ $kind == port ]]; then
		progress=${rest##* }
		return
	fi
	while [[ $rest =~ \"rq-psn\":([0-9]+)[^}]*\"pid\":$1[,}] ]]; do
		progress=$((progress + BASH_REMATCH[1]))
		rest=${rest#*"${BASH_REMATCH[0]}"}
	done
}

# Wait until data flows from client CLIENT to server SERVER (ids). The progress of a QP changes
# when it appears and when it is connected; what follows is data.
wait_for_data() {
	local server=$1 client=$2 i last='' changes=0

	for ((i = 0; i < 200; i++)); do
		progress_of "$server" || return 1
		[[ $progress == "$last" ]] || changes=$((changes + 1))
		last=$progress
		((changes < 4)) || return 0
		kill -0 "$client" 2>/dev/null || return 1
		nap
	done
	return 1
}

# ---- perftest ----

# What a program whose output is in FILE and FILE.err said last, on stderr if it said anything.
last_words() {
	local words
	words=$(sed '/^[-[:space:]]*$/d; /inline feature/d' "$1.err" | tail -n 1)
	[[ -n $words ]] || words=$(sed '/^[-[:space:]]*$/d' "$1" | tail -n 1)
	echo "$words"
}

# Set settings to the arguments of env(1) for programs of CLASS in this scenario. What the user has
# set of rnice is not part of the comparison: --env is for that.
environment_of() {
	local name
	settings=()
	for name in "${!RNICE_@}"; do
		settings+=(-u "$name")
	done
	((!rnice)) || settings+=("LD_PRELOAD=$library" "RNICE_CLASS=$1" ${extra[@]+"${extra[@]}"})
}

# Whether somebody listens on TCP port PORT.
listening() {
	local table socket sockets pattern
	printf -v pattern '*:%04X *:0000 0A *' "$1"

	for table in /proc/net/tcp /proc/net/tcp6; do
		[[ ! -r $table ]] || mapfile -t sockets <"$table"
		for socket in "${sockets[@]}"; do
			# shellcheck disable=SC2053 # it is a pattern
			[[ $socket != $pattern ]] || return 0
		done
	done
	return 1
}

# Wait until server PID listens on TCP port PORT.
wait_for_port() {
	local i

	for ((i = 0; i < 150; i++)); do
		! listening "$1" || return 0
		kill -0 "$2" 2>/dev/null || return 1
		nap
	done
	return 1
}

# Start the server of PROGRAM... with output in FILE; sets pid and port.
server() {
	local out=$1
	shift
	port=$((next_port++))
	spawn "$out" env "${settings[@]}" "$@" -d "$peer" "${common[@]}" -p "$port"
	wait_for_port "$port" "$pid" || {
		why="the server of $1 does not listen: $(last_words "$out")"
		return 1
	}
}

# Start the client of PROGRAM... on CPU against the server on PORT; sets pid.
client() {
	local cpu=$1 out=$2 to=$3
	shift 3
	spawn "$out" taskset -c "$cpu" env "${settings[@]}" "$@" -d "$device" "${common[@]}" \
		-p "$to" 127.0.0.1
}

bulk_start() {
	local program=("${bulk_program[@]}" -s "$bulk_size" -D 900 ${bulk_class[@]+"${bulk_class[@]}"})

	environment_of bulk
	server "$base.bulk-server" "${program[@]}" || {
		bulk_server=$pid
		return 1
	}
	bulk_server=$pid
	client "$bulk_cpu" "$base.bulk" "$port" "${program[@]}"
	bulk_client=$pid
	wait_for_data "$bulk_server" "$bulk_client" || {
		why="bulk does not start: $(last_words "$base.bulk")"
		return 1
	}
	sleep 1 # the queues fill
}

# perftest's duration mode goes through three alarms: warm-up, measuring, end. Sent by hand they
# make it stop in an orderly way, long before its -D.
bulk_stop() {
	local i

	[[ -z $bulk_client ]] || {
		kill -0 "$bulk_client" 2>/dev/null || why=${why:-"bulk ended early: $(last_words "$base.bulk")"}
		for ((i = 0; i < 3; i++)); do
			kill -ALRM "$bulk_client" 2>/dev/null || :
			nap
		done
		reap "$bulk_client" 50
	}
	[[ -z $bulk_server ]] || reap "$bulk_server" 30
}

# Wait until client CLIENT has something in FILE, at most so many TENTHS of a second: perftest
# prints when it has measured, and may then take seconds to end.
wait_for_output() {
	local i

	for ((i = 0; i < $3; i++)); do
		[[ ! -s $2 ]] || return 0
		kill -0 "$1" 2>/dev/null || return 0
		nap
	done
}

# Start a latency server for ITERATIONS whose client will write FILE: before bulk, because
# starting a program takes long on a busy emulated CPU.
latency_server() {
	latency_command=("${latency_program[@]}" -s "$latency_size" -n "$1"
		${latency_class[@]+"${latency_class[@]}"})
	environment_of latency
	server "$2-server" "${latency_command[@]}" || return 1
	latency_pid=$pid latency_port=$port
}

# Run the client of the latest latency_server, with its output in FILE. Sets before and after: the
# counters at both ends of the time in which it measured.
latency_client() {
	local out=$1

	environment_of latency
	client "$latency_cpu" "$out" "$latency_port" "${latency_command[@]}" -U
	# Alone there is nothing to count, and looking would disturb.
	[[ $kind == port ]] || ((!with_bulk)) || wait_for_data "$latency_pid" "$pid" || :
	counters || return 1
	before=$line
	wait_for_output "$pid" "$out" $((seconds * 60 + 100))
	counters || return 1
	after=$line
	reap "$pid" 100
	if ((ended != 0)); then
		why="${latency_program[0]} failed (status $ended): $(last_words "$out")"
		return 1
	fi
	reap "$latency_pid" 20
}

# Read what perftest -U wrote into FILE; sets latency_average (us) and summary. It calibrates the
# CPU's clock against the time of day, and on a noisy machine that fails: it says so, and prints
# inf or figures that are off.
latency_result() {
	local lines text last w='[0-9.]+[[:space:]]+' x='([0-9.]+)[[:space:]]+'
	local any='[^[:space:]]+[[:space:]]+'
	mapfile -t lines <"$1"
	text=$(<"$1.err")

	last=$((${#lines[@]} < 5 ? 0 : ${#lines[@]} - 5))
	if [[ "$text ${lines[*]:0:40}" == *"Correlation coefficient"* || ${lines[*]:last} == *inf* ]]; then
		why="perftest could not calibrate its clock"
		return 1
	fi
	# bytes iterations min max typical average stdev p99 p99.9; the stdev may be -nan
	[[ ${lines[*]:last} =~ $w$w$w$w$x$x$any$x ]] || {
		why="${latency_program[0]} printed no result"
		return 1
	}
	summary="p50 ${BASH_REMATCH[1]}, avg ${BASH_REMATCH[2]}, p99 ${BASH_REMATCH[3]} us"
	latency_average=${BASH_REMATCH[2]%.*}
}

declare -A iterations=() # by scenario: how many to run next time

# As many iterations as take --seconds at the average seen last; enough for a p99, at most MOST.
plan_iterations() {
	local n=$((seconds * 1000000 / (latency_average + 1)))
	((n >= 200)) || n=200
	((n <= $1)) || n=$1
	iterations[$scenario]=$n
}
