# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by suites that boot the testbed.

# once_more COMMAND...: COMMAND runs scripts/testbed and returns its status; it is run once more when the
# guest's kernel panicked (123), and for no other reason. That kernel is Debian's own. It happened once in
# very many boots: an oops in validate_xmit_skb(), below a queue that limits the rate. Packets of soft RoCE name
# the socket of their QP; our guess is that one waited there for longer than its QP lived.
once_more() {
	local ended=0
	"$@" || ended=$?
	((ended == 123)) || return $ended
	echo "NOTE: THE GUEST'S KERNEL PANICKED (its log is above); booting once more, for the last time"
	"$@"
}
