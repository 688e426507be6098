#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What class latency adds to calls of the real libmlx5, on the emulated ConnectX.

mlx5_probe runs natively and preloaded in turns, pinned to one CPU; the NIC takes no part in what is
timed. Shown are the medians, per process the best of its rounds (what else runs only makes one slower),
and instructions, exactly, by callgrind: of the median call, which is not one of those in 64 that are
timed (RNICE_SAMPLE_EVERY), and the mean of all calls. Exit status: 0 every target met, 1 one missed.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEPTH = 4096  # calls of one round: mlx5_probe.c
# mode: what it is, most nanoseconds, most instructions of the median call
MODES = {
    "post": ("ibv_post_send", 5, 12),
    "wr": ("ibv_wr_* (start to complete)", 5, 12),
    "recv": ("ibv_post_recv", 5, 12),
    "poll": ("ibv_poll_cq, a completion", 5, None),
    "ex": ("ibv_start_poll to end_poll", 5, None),
}


def probe(args, preloaded, mode, rounds, *under, calls=DEPTH):
    command = [os.path.join(TOP, "scripts/emulate")]
    if preloaded:
        command += ["--preload", os.path.join(args.build, "librnice.so")]
    command += ["--", *under, os.path.join(args.build, "bench/mlx5_probe"), mode, str(rounds),
                str(calls)]
    env = dict(os.environ, RNICE_CLASS="latency", RNICE_SEGMENT=args.segment,
               MLX5EMU_LIB=os.path.join(args.build, "mlx5emu.so"))
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    if out.returncode:
        sys.exit(f"mlx5_overhead: {mode}: {out.stderr.strip()}")
    return out


def best(args, preloaded, mode):
    out = probe(args, preloaded, mode, args.rounds, "taskset", "-c", args.cpu)
    return min(map(float, out.stdout.split()))


def count(args, preloaded, mode, calls):
    out = probe(args, preloaded, mode, 1, "valgrind", "--tool=callgrind", "--toggle-collect=measured",
                "--callgrind-out-file=/dev/null", calls=calls)
    return int(re.search(r"Collected\s*:\s*(\d+)", out.stderr).group(1))


def instructions(args, preloaded, mode):
    """Of a call that is not timed (numbers 16 to 47: the first ones of a process differ), and the mean of all."""
    untimed = (count(args, preloaded, mode, 48) - count(args, preloaded, mode, 16)) / 32
    return untimed, count(args, preloaded, mode, DEPTH) / DEPTH


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--cpu", default=str(max(os.sched_getaffinity(0))), help="to pin to")
    parser.add_argument("--rounds", type=int, default=9, help=f"of {DEPTH} calls per process (9)")
    parser.add_argument("--repeat", type=int, default=7, help="processes each way, in turns (7)")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.segment = f"/dev/shm/rnice-mlx5-{os.getpid()}"
    missed = False
    print(f"{'libmlx5, class latency':<30} {'native':>8} {'wrapped':>8} {'added ns':>9} {'native':>8} "
          f"{'wrapped':>8} {'added instr':>12} {'mean':>6}")
    try:
        for mode, (name, most_ns, most_instr) in MODES.items():
            ns = {False: [], True: []}
            for i in range(args.repeat):
                for preloaded in (False, True) if i % 2 else (True, False):
                    ns[preloaded].append(best(args, preloaded, mode))
            native, wrapped = (statistics.median(ns[p]) for p in (False, True))
            (plain, plain_mean), (ours, ours_mean) = (instructions(args, p, mode) for p in (False, True))
            added = ours - plain
            met = wrapped - native <= most_ns and (most_instr is None or added <= most_instr)
            missed |= not met
            print(f"{name:<30} {native:>8.2f} {wrapped:>8.2f} {wrapped - native:>+9.2f} {plain:>8.1f} "
                  f"{ours:>8.1f} {added:>+12.1f} {ours_mean - plain_mean:>+6.1f}  "
                  f"{'met' if met else 'MISSED'}", flush=True)
    finally:
        if os.path.exists(args.segment):
            os.remove(args.segment)
    return missed


sys.exit(main())
