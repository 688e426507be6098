# SPDX-License-Identifier: BSD-2-Clause
"""What a preloaded library costs a program that never touches verbs: startup.py LIBRARY [ROUNDS]

Runs /bin/true natively and preloaded in turn, and prints the difference of the medians in
milliseconds; then the same for the peak memory of a small program, in KiB.
"""
import os
import statistics
import subprocess
import sys
import time

library = os.path.realpath(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
native = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
preloaded = {**native, "LD_PRELOAD": library}


def run_time(env):
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], env), 0)
    return time.perf_counter() - begin


def peak(env):
    line = subprocess.run(["grep", "VmHWM", "/proc/self/status"], env=env, check=True,
                          stdout=subprocess.PIPE).stdout
    return int(line.split()[1])


def difference(measure, times):
    pairs = [(measure(native), measure(preloaded)) for _ in range(times)]
    return statistics.median(p[1] for p in pairs) - statistics.median(p[0] for p in pairs)


print(f"{difference(run_time, rounds) * 1000:.3f} {difference(peak, 9):.0f}")
