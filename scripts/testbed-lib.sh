# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The wired pair of soft-RoCE devices and its port; sourced by testbed and testbed-guest.
#
#   rxe0 - v0 ====== veth ====== v1 - rxe1
#
# Everything here changes the network it is run in: call it in a virtual machine or in a network
# namespace of one's own. Callers have set -euo pipefail.

TB_NETDEV=(v0 v1)
TB_DEV=(rxe0 rxe1)
# TEST-NET-1 (RFC 5737): nobody's real network.
TB_ADDR=(192.0.2.1 192.0.2.2)
TB_MAC=(02:00:00:00:02:01 02:00:00:00:02:02)

# Room for the RDMA headers above the largest path MTU, 4096.
TB_MTU=4200

# Create the veth pair and make packets between its two ends cross it.
#
# Both addresses are local, so the kernel would short-circuit them through lo. The rules make the
# way out (iif lo: packets born here) prefer the wire, and leave the way in to the local table,
# which therefore has to come after them. The oif rules do the same for the look-ups that
# rdma_cm's kernel half makes with the device already chosen; without them it rejects connections.
#
# One `ip` for everything: starting a program costs tens of milliseconds in an emulated guest.
tb_wire() {
	local i j nd

	{
		echo "link set lo up"
		echo "link add ${TB_NETDEV[0]} address ${TB_MAC[0]} mtu $TB_MTU type veth" \
			"peer name ${TB_NETDEV[1]} address ${TB_MAC[1]} mtu $TB_MTU"
		echo "rule add pref 200 lookup local"
		echo "rule del pref 0"
		for i in 0 1; do
			j=$((1 - i)) nd=${TB_NETDEV[i]}
			echo "addr add ${TB_ADDR[i]}/32 dev $nd"
			echo "link set $nd up"
			echo "route add ${TB_ADDR[j]} dev $nd src ${TB_ADDR[i]} table $((101 + i))"
			echo "rule add pref $((10 + i)) iif lo from ${TB_ADDR[i]} to ${TB_ADDR[j]}" \
				"lookup $((101 + i))"
			echo "rule add pref $((20 + i)) oif $nd to ${TB_ADDR[j]} lookup $((101 + i))"
			echo "neigh add ${TB_ADDR[j]} lladdr ${TB_MAC[j]} dev $nd nud permanent"
		done
	} | ip -batch -

	# Two packets of one QP handled on two CPUs overtake each other, and a burst overflows the
	# default backlog of 1000. rxe survives neither well: UC loses messages, RC retransmits.
	# (A namespace does not have the setting; there it is the host's.)
	[[ ! -e /proc/sys/net/core/netdev_max_backlog ]] ||
		echo 200000 >/proc/sys/net/core/netdev_max_backlog
	for nd in "${TB_NETDEV[@]}"; do
		echo 1 >"/sys/class/net/$nd/queues/rx-0/rps_cpus"
	done
	for nd in all "${TB_NETDEV[@]}"; do
		echo 0 >"/proc/sys/net/ipv4/conf/$nd/rp_filter"
		echo 1 >"/proc/sys/net/ipv4/conf/$nd/accept_local"
	done
}

# Create the RDMA devices on the two ends. Prints what failed, in one line, and returns 1 if so.
tb_rxe() {
	local i out

	# rxe asks for "crc32" by name only when a device is made, and then it must be there:
	# without it `rdma link add` fails with "No such file or directory".
	out=$(modprobe -a crc32_generic rdma_rxe rdma_ucm 2>&1) || [[ -d /sys/module/rdma_rxe ]] || {
		echo "cannot load rdma_rxe: $out"
		return 1
	}
	for i in 0 1; do
		out=$(rdma link add "${TB_DEV[i]}" type rxe netdev "${TB_NETDEV[i]}" 2>&1) || {
			echo "cannot create ${TB_DEV[i]} on ${TB_NETDEV[i]}: $out"
			return 1
		}
	done
}

# Wait until both devices are up; 1 if that does not happen.
tb_active() {
	local i dev state

	for dev in "${TB_DEV[@]}"; do
		for ((i = 0; ; i++)); do
			{ state=$(<"/sys/class/infiniband/$dev/ports/1/state"); } 2>/dev/null || :
			[[ $state != *ACTIVE* ]] || break
			((i < 50)) || return 1
			sleep 0.1
		done
	done
}

# The index of DEVICE's RoCE v2 GID that is IPv4 address ADDR; nothing if there is none.
tb_gid_index() {
	local port=/sys/class/infiniband/$1/ports/1 want octets i

	IFS=. read -ra octets <<<"$2"
	want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${octets[@]}")
	# Reading an entry that is not in use fails, and there may be hundreds.
	for ((i = 0; i < 32; i++)); do
		if [[ $(cat "$port/gids/$i" 2>/dev/null) == "$want" &&
			$(cat "$port/gid_attrs/types/$i" 2>/dev/null) == "RoCE v2" ]]; then
			echo $i
			return
		fi
	done
}

# What the command is told about the pair, one NAME=VALUE a line.
tb_environment() {
	local i

	for i in 0 1; do
		echo "TESTBED_DEV$i=${TB_DEV[i]}"
		echo "TESTBED_NETDEV$i=${TB_NETDEV[i]}"
		echo "TESTBED_ADDR$i=${TB_ADDR[i]}"
	done
	echo "TESTBED_GID_INDEX=$(tb_gid_index "${TB_DEV[0]}" "${TB_ADDR[0]}")"
}

# RATE (100mbit, 2.5gbit, ...) in bit/s; returns 1 on anything else.
tb_bits() {
	[[ ${1,,} =~ ^([0-9]+(\.[0-9]+)?)([kmg])bit$ ]] || return 1
	awk -v n="${BASH_REMATCH[1]}" -v u="${BASH_REMATCH[3]}" 'BEGIN {
		n *= u == "k" ? 1e3 : u == "m" ? 1e6 : 1e9
		if (n < 1e6 || n > 1e11) exit 1
		printf "%.0f\n", n
	}'
}

# Make both ports send at RATE at most; "off" takes the limit away.
#
# KIND says what waits where: none (one queue), prio (packets whose TOS byte is TOS go first,
# always), prio-whole (the same, as on a wire) or ets (they get PERCENT of the rate when both sides
# want it).
#
# Under prio the packet that tbf is saving up for can still be overtaken, though on a wire it would
# be half out. A second tbf that never limits holds the packet it was asked for (so does ets).
#
# The burst is 1.3 ms of the rate (16 KiB at 100mbit), which keeps a timer that fires late from
# costing throughput, but never less than two packets. The queue holds 200 ms: rxe has at most 64
# packets of each QP in it, so a shorter one would only add losses that the hardware would not
# have.
tb_shape() {
	local rate=$1 kind=${2-none} tos=${3-0xb8} percent=${4-50} bits burst limit nd child parent

	for nd in "${TB_NETDEV[@]}"; do
		tc qdisc del dev "$nd" root 2>/dev/null || :
	done
	[[ $rate != off ]] || return 0

	bits=$(tb_bits "$rate")
	burst=$((bits * 16384 / 100000000))
	((burst >= 2 * (TB_MTU + 14))) || burst=$((2 * (TB_MTU + 14)))
	limit=$((bits / 8 / 5 + burst))
	for nd in "${TB_NETDEV[@]}"; do
		tc qdisc add dev "$nd" root handle 1: \
			tbf rate "${bits}bit" burst $burst latency 200ms
		case $kind in
		none) continue ;;
		prio | prio-whole) child=(prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1) ;;
		ets)
			child=(ets bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
				quanta $((percent * TB_MTU / 10)) $(((100 - percent) * TB_MTU / 10)))
			;;
		esac
		parent=1:1
		if [[ $kind == prio-whole ]]; then
			tc qdisc add dev "$nd" parent 1:1 handle 2: tbf rate 100gbit burst 1m limit 1m
			parent=2:1
		fi
		tc qdisc add dev "$nd" parent $parent handle 10: "${child[@]}"
		tc qdisc add dev "$nd" parent 10:1 handle 11: bfifo limit $limit
		tc qdisc add dev "$nd" parent 10:2 handle 12: bfifo limit $limit
		# The two low bits are ECN's.
		tc filter add dev "$nd" parent 10: protocol ip u32 match ip tos "$tos" 0xfc flowid 10:1
	done
}

# The rate that tb_shape has set, as tc prints it; nothing if there is none.
tb_rate() {
	tc qdisc show dev "${TB_NETDEV[0]}" root |
		awk '$2 == "tbf" { for (i = 3; i < NF; i++) if ($i == "rate") print $(i + 1) }'
}

# Run ARGUMENTS... as the command: cleared environment, the NAME=VALUE lines of ENVIRONMENT
# (elements end in NUL), directory CWD, a session of its own. Does not return: call in a subshell.
tb_exec() {
	local environment=$1 cwd=$2
	local -a vars
	shift 2

	mapfile -d '' vars <"$environment"
	cd "$cwd" || exit 125
	# sh, because env alone would take a command with a = in its name for a variable.
	# shellcheck disable=SC2016 # the inner shell's own arguments
	exec setsid env -i "${vars[@]}" sh -c 'exec "$@"' sh "$@"
}
