#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What class latency costs whole programs: ib_write_lat, and rdma-core's own test-suite.

On the emulated ConnectX, natively and preloaded in turns; the figure is the ratio of the medians, and
beside it the median of each pair's ratio. The spread (half of the native runs lie within it) shows the
noise. The NIC works inside each post here, which takes microseconds: the same nanoseconds weigh more on
a NIC of silicon (bench/overhead.py has them). ib_write_lat has one core for each end, and addresses
without random choice, which would outweigh everything.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EMULATE = os.path.join(TOP, "scripts/emulate")


def free_port():
    for port in random.sample(range(20000, 30000), 50):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return str(port)
    sys.exit("programs: no free TCP port")


class Runner:
    def __init__(self, build, work):
        self.lib = os.path.join(build, "librnice.so")
        self.env = dict(os.environ, MLX5EMU_LIB=os.path.join(build, "mlx5emu.so"),
                        RNICE_CLASS="latency", RNICE_SEGMENT=os.path.join(work, "segment"))
        self.work = work
        cpus = [str(c) for c in sorted(os.sched_getaffinity(0))]
        self.cpus = [cpus[0], cpus[-1]]

    def emulated(self, preloaded, command):
        preload = ["--preload", self.lib] if preloaded else []
        out = subprocess.run([EMULATE, "--mode", "trap", *preload, "--", *command], env=self.env, cwd=TOP,
                             capture_output=True, text=True, timeout=300, check=False)
        if out.returncode:
            sys.exit(f"programs: {command[0]}: {(out.stdout + out.stderr)[-1000:]}")
        return out.stdout

    def write_lat(self, preloaded):
        """The typical latency in us."""
        port = free_port()
        ends = [["setarch", "-R", "taskset", "-c", cpu, "ib_write_lat", "-d", "mlx5_0", "-x", "0",
                 "-s", "2", "-n", "20000", "-F", "-p", port] for cpu in self.cpus]
        out = self.emulated(preloaded, [os.path.join(TOP, "tests/mlx5emu/run"), "--pair", port, *ends[0],
                                        "--", *ends[1], "localhost"])
        row = [line.split() for line in out.splitlines() if line.split()[:2] == ["2", "20000"]]
        return float(row[0][4])

    def pyverbs(self, preloaded):
        """The seconds of the whole suite."""
        begin = time.monotonic()
        self.emulated(preloaded, ["/usr/bin/python3", "-B", "tests/pyverbs/record", self.work,
                                  os.path.join(self.work, "log"), "--dev", "mlx5_0"])
        return time.monotonic() - begin

    def compare(self, name, program, rounds):
        native, preloaded = [], []
        for i in range(rounds):
            for p in (False, True) if i % 2 else (True, False):
                (preloaded if p else native).append(program(p))
        low, median, high = statistics.quantiles(native, n=4)
        pairs = statistics.median(p / n for n, p in zip(native, preloaded))
        print(f"{name:<32} {statistics.median(preloaded) / median:>8.4f} {pairs:>8.4f} "
              f"{low / median:>9.3f}..{high / median:.3f} {rounds:>7}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--latency", type=int, default=61, help="runs of ib_write_lat each way (61)")
    parser.add_argument("--suite", type=int, default=5, help="runs of the test-suite each way (5)")
    args = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}\n"
          f"{'class latency over native':<32} {'ratio':>8} {'pairs':>8} {'native spread':>16} {'runs':>7}")
    with tempfile.TemporaryDirectory(prefix="rnice-programs.", dir="/dev/shm") as work:
        runner = Runner(os.path.abspath(args.build), work)
        if args.latency > 1:
            runner.compare("ib_write_lat, typical latency", runner.write_lat, args.latency)
        if args.suite > 1:
            if subprocess.run([os.path.join(TOP, "tests/pyverbs/prepare"), work, "10.77.0.1",
                               "02:77:00:00:00:00"], check=False).returncode:
                sys.exit("programs: rdma-core's tests are not there: run scripts/setup")
            runner.compare("rdma-core's test-suite, seconds", runner.pyverbs, args.suite)


main()
