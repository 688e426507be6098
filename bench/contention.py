#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What sharing a doorbell register costs in libmlx5, and what the modes of RNICE_UAR make of it.

Threads that post to a QP each hammer the locks of the real libmlx5 over the emulated ConnectX, whose
NIC takes no part (contention_probe). All settings run in turns; shown are the medians of the runs, as
ratios to the driver's placement. Stores to a doorbell are stores to memory here, so what real NICs add
to a shared register (ordering of write-combining buffers, PCIe) is missing: the ratios are of software
alone, and of as many cores as the machine has.
"""

import argparse
import os
import statistics
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODES = ["driver", "shared", "balanced", "per-qp", "auto"]


def run(build, mode, threads, rounds, segment):
    command = [os.path.join(TOP, "scripts/emulate")]
    if mode != "native":
        command += ["--preload", os.path.join(build, "librnice.so")]
    command += ["--", os.path.join(build, "bench/contention_probe"), str(threads), str(rounds)]
    env = dict(os.environ, RNICE_UAR=mode.replace("native", "driver"), RNICE_CLASS="latency",
               RNICE_SEGMENT=segment, MLX5EMU_LIB=os.path.join(build, "mlx5emu.so"))
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    if out.returncode:
        sys.exit(f"contention: {mode}, {threads} threads: {out.stderr.strip()}")
    return float(out.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    cores = len(os.sched_getaffinity(0))
    steps = ",".join(str(1 << i) for i in range(5) if 1 << i <= cores)
    parser.add_argument("--threads", default=steps, help=f"numbers of threads ({steps})")
    parser.add_argument("--rounds", type=int, default=30, help="of 4096 posts per thread (30)")
    parser.add_argument("--repeat", type=int, default=12, help="runs of each, in turns (12)")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    segment = f"/dev/shm/rnice-contention-{os.getpid()}"
    modes = ["native"] + MODES
    print(f"messages/s as a ratio to driver; {cores} cores, "
          f"load {os.getloadavg()[0]:.1f}; QPs of all threads on one register in mode driver")
    print(f"{'threads':>7} " + "".join(f"{m:>10}" for m in modes) + f"{'driver M/s':>12}")
    try:
        for threads in map(int, args.threads.split(",")):
            runs = {m: [] for m in modes}
            for _ in range(args.repeat):
                for m in modes:
                    runs[m].append(run(build, m, threads, args.rounds, segment))
            median = {m: statistics.median(v) for m, v in runs.items()}
            print(f"{threads:>7} " + "".join(f"{median[m] / median['driver']:>10.2f}" for m in modes)
                  + f"{median['driver'] / 1e6:>12.2f}", flush=True)
    finally:
        if os.path.exists(segment):
            os.remove(segment)


main()
