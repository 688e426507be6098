# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Sourced by suites that boot the testbed.

# once_more COMMAND...: COMMAND runs scripts/testbed and returns its status; it is run once more when the
# guest's kernel panicked (123), and for no other reason. That kernel is Debian's own, and its soft RoCE
# frees the socket of a QP that is destroyed in the middle of its work, while packets that name the socket
# still wait behind a limit; when its memory has got another user by the time they are sent, that is an oops
# in validate_xmit_skb(). It happened once in very many boots, and says nothing about rnice.
once_more() {
	local ended=0
	"$@" || ended=$?
	((ended == 123)) || return $ended
	echo "NOTE: THE GUEST'S KERNEL PANICKED (its log is above); booting once more, for the last time"
	"$@"
}
