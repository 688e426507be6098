#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What librnice.so costs a program, measured on a libibverbs whose operations do nothing.

The same program (overhead_probe) runs natively and with the library preloaded, in turns, many
times, pinned to one CPU. Times are medians; instructions are exact differences of two runs of
different length, so that start-up cancels out. Exit status: 0 every target met (or --report-only),
1 one missed, 2 nothing could be measured.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The budget of each path, per chunk. None: measured and shown, nothing promised.
TARGET_PAIR_NS = 10.0  # bypass: one post and one poll together
TARGET_CHUNK_NS = 60.0  # managed: the same
TARGET_IDLE_CPU = 0.1  # per cent of one CPU while the program sleeps

LATENCY = {"RNICE_CLASS": "latency"}
BULK = {"RNICE_CLASS": "bulk"}
CUT = {"RNICE_CLASS": "bulk", "RNICE_POLICY": "static", "RNICE_CHUNK": "4096"}


class Case:
    """One line of the table: a mode of the probe under one setting of rnice."""

    def __init__(self, name, mode, env, size=64, depth=16, target=None, iterations=1000000):
        self.name, self.mode, self.env, self.target = name, mode, env, target
        self.args = [mode, "-b", str(size), "-d", str(depth)]
        self.iterations = iterations


CASES = [
    Case("latency: post + poll", "pair", LATENCY, target=TARGET_PAIR_NS),
    Case("latency: unsignaled post", "post", LATENCY),
    Case("latency: poll, nothing there", "empty", LATENCY),
    Case("latency: post + poll, locking driver", "locked", LATENCY),
    Case("policy off: post + poll", "pair", {"RNICE_POLICY": "off"}),
    Case("policy observe: post + poll", "pair", {"RNICE_POLICY": "observe"}),
    Case("auto: post + poll, 64 B", "locked", {"RNICE_CLASS": "auto"}),
    Case("bulk: 64 B, 16 deep", "stream", BULK, target=TARGET_CHUNK_NS),
    Case("bulk: 4 KiB, 16 deep", "stream", BULK, size=4096, target=TARGET_CHUNK_NS),
    Case("bulk: 1 MiB, 16 deep", "stream", BULK, size=1 << 20, target=TARGET_CHUNK_NS),
    Case("bulk: 1 MiB cut to 4 KiB", "stream", CUT, size=1 << 20, target=TARGET_CHUNK_NS,
         iterations=10000),
]


class Failure(Exception):
    pass


class Bench:
    def __init__(self, opts):
        self.opts = opts
        self.notes = []  # what the library said on stderr, and what looks wrong
        self.segment = "/dev/shm/rnice-overhead-%d" % os.getpid()
        self.probe = os.path.join(opts.build, "bench", "overhead_probe")
        base = {k: v for k, v in os.environ.items()
                if not k.startswith("RNICE_") and k != "LD_PRELOAD"}
        base["LD_LIBRARY_PATH"] = os.path.join(opts.build, "bench", "null")
        self.native_env = base
        for path in (self.probe, os.path.join(base["LD_LIBRARY_PATH"], "libibverbs.so.1"),
                     opts.library):
            if not os.path.exists(path):
                raise Failure("%s is missing: make all bench-programs" % path)

    def env(self, rnice):
        """The environment of a native (None) or of a wrapped run."""
        if rnice is None:
            return self.native_env
        # The leading slash makes it a path: the user's own segment is not touched.
        return dict(self.native_env, LD_PRELOAD=self.opts.library, RNICE_SEGMENT=self.segment,
                    **rnice)

    def note(self, text):
        for line in text.splitlines():
            if "cannot be preloaded" in line:
                raise Failure(line)
            if line.strip() and line not in self.notes:
                self.notes.append(line)

    def run(self, command, rnice):
        try:
            done = subprocess.run(command, env=self.env(rnice), timeout=self.opts.timeout,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except subprocess.TimeoutExpired as e:
            raise Failure("no end after %d s: %s" % (self.opts.timeout, " ".join(command))) from e
        if done.returncode:
            raise Failure("exit status %d: %s\n%s" % (done.returncode, " ".join(command),
                                                      done.stderr.strip()))
        return done

    def sample(self, case, rnice):
        """A list of (ns per operation, WRs per operation) from one process."""
        done = self.run([self.probe] + case.args + [
            "-c", str(self.opts.cpu), "-s", str(self.opts.samples),
            "-n", str(max(1, int(case.iterations * self.opts.scale))),
            "-w", str(max(1, int(case.iterations * self.opts.scale / 10)))], rnice)
        if rnice is not None:
            self.note(done.stderr)
        samples = []
        for line in done.stdout.splitlines():
            ns, ops, wrs = (int(x) for x in line.split()[1:])
            samples.append((ns / ops, wrs / ops))
        return samples

    def times(self, case):
        """Rounds of native and wrapped in turns; who goes first alternates too."""
        native, wrapped, added, chunks = [], [], [], []
        for i in range(self.opts.rounds):
            pair = {}
            for which in (None, case.env) if i % 2 == 0 else (case.env, None):
                pair[which is None] = self.sample(case, which)
            plain = [ns for ns, _ in pair[True]]
            ours = [ns for ns, _ in pair[False]]
            native += plain
            wrapped += ours
            chunks += [c for _, c in pair[False]]
            added.append(statistics.median(ours) - statistics.median(plain))
        per = statistics.median(chunks) or 1.0
        return {
            "native_ns": statistics.median(native),
            "wrapped_ns": statistics.median(wrapped),
            "added_ns": statistics.median(added),
            "added_ns_spread": [min(added), max(added)],
            "chunks_per_operation": per,
            "added_ns_per_chunk": statistics.median(added) / per,
            "best_native_ns": min(native),
            "best_wrapped_ns": min(wrapped),
            "samples_native_ns": native,
            "samples_wrapped_ns": wrapped,
        }

    def count(self, case, rnice, n):
        """Instructions of all threads of one run of n operations."""
        probe = [self.probe] + case.args + ["-s", "1", "-w", "100", "-n", str(n)]
        done = self.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"] + probe,
                        rnice)
        found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
        if not found:
            raise Failure("no count from valgrind:\n" + done.stderr)
        return int(found.group(1))

    def instructions(self, case):
        few, many = (20, 220) if case.iterations < 100000 else (1000, 11000)
        result = {}
        for which, rnice in (("native", None), ("wrapped", case.env)):
            result[which] = ((self.count(case, rnice, many) - self.count(case, rnice, few)) /
                             (many - few))
        result["added"] = result["wrapped"] - result["native"]
        return result

    def measure(self, case):
        result = {"name": case.name, "mode": case.mode, "arguments": case.args,
                  "environment": case.env, "target_ns": case.target}
        result.update(self.times(case))
        if self.opts.instructions:
            result["instructions"] = self.instructions(case)
            if result["instructions"]["added"] <= 0 and case.env.get("RNICE_POLICY") != "off":
                self.note("%s: not one instruction more, so rnice was not in the way" % case.name)
        result["met"] = case.target is None or result["added_ns_per_chunk"] <= case.target
        return result

    # ---- being preloaded at all ----

    def start_up(self):
        """Milliseconds that the library adds to the life of /bin/true."""
        took = {True: [], False: []}
        for i in range(2 * self.opts.spawns):
            native = i % 2 == 0
            start = time.perf_counter_ns()
            pid = os.posix_spawn("/bin/true", ["true"], self.env(None if native else {}))
            os.waitpid(pid, 0)
            took[native].append((time.perf_counter_ns() - start) / 1e6)
        plain, ours = (statistics.median(took[k]) for k in (True, False))
        return {"native_ms": plain, "wrapped_ms": ours, "added_ms": ours - plain}

    def idle(self):
        """Memory and CPU of processes that do nothing: a few of each kind, all at the same time."""
        kinds = (("sleep(1)", ["sleep", "600"], {}),
                 ("idle RDMA program, latency", [self.probe, "idle"], LATENCY),
                 ("idle RDMA program, bulk", [self.probe, "idle"], BULK))
        sleepers = []  # (kind, native?, process)
        try:
            for name, command, rnice in kinds * 3:
                for native in (True, False):
                    sleepers.append((name, native, subprocess.Popen(
                        command, env=self.env(None if native else rnice),
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)))
            time.sleep(2)
            seen = watch([process.pid for _, _, process in sleepers], self.opts.idle)
        except OSError as e:
            raise Failure("an idle program did not stay alive: %s" % e) from e
        finally:
            for _, _, process in sleepers:
                process.kill()
                process.wait()
        return [idle_row(name, *(
            [seen[p.pid] for n, native, p in sleepers if n == name and native == which]
            for which in (True, False))) for name, _, _ in kinds]

    def close(self):
        if os.path.exists(self.segment):
            os.unlink(self.segment)


def cpu_ns(pid):
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task), encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total


def field_kib(path, names):
    with open(path, encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.split(":")[0] in names)


def status_kib(pid, name):
    return field_kib("/proc/%d/status" % pid, (name,))


def private_kib(pid):
    return field_kib("/proc/%d/smaps_rollup" % pid, ("Private_Clean", "Private_Dirty"))


def watch(pids, seconds):
    """{pid: memory in KiB, CPU in per cent of one} over that many seconds."""
    before, start = [cpu_ns(pid) for pid in pids], time.perf_counter_ns()
    time.sleep(seconds)
    spent = time.perf_counter_ns() - start
    return {pid: {"max_rss_kib": status_kib(pid, "VmHWM"), "private_kib": private_kib(pid),
                  "cpu_percent": 100.0 * (cpu_ns(pid) - was) / spent}
            for pid, was in zip(pids, before)}


def idle_row(name, native, wrapped):
    def median(runs, key):
        return statistics.median(run[key] for run in runs)

    cpu = median(wrapped, "cpu_percent")
    return {"name": name, "native": native, "wrapped": wrapped, "cpu_percent": cpu,
            "added_max_rss_kib": median(wrapped, "max_rss_kib") - median(native, "max_rss_kib"),
            "added_private_kib": median(wrapped, "private_kib") - median(native, "private_kib"),
            "target_cpu_percent": TARGET_IDLE_CPU, "met": cpu <= TARGET_IDLE_CPU}


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            return next(line.split(":", 1)[1].strip() for line in f
                        if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def verdict(row, target):
    if target is None:
        return ""
    return "<= %g %s" % (target, "met" if row["met"] else "MISSED")


HEAD = "%-37s %8s %8s %8s  %7s %8s  %7s %7s %7s  %s"
LINE = "%-37s %8.2f %8.2f %+8.2f  %7.4g %+8.2f  %7s %7s %7s  %s"


def print_case(row):
    count = row.get("instructions")
    shown = ["%.0f" % count[k] for k in ("native", "wrapped", "added")] if count else ["-"] * 3
    print(LINE % (row["name"], row["native_ns"], row["wrapped_ns"], row["added_ns"],
                  row["chunks_per_operation"], row["added_ns_per_chunk"], *shown,
                  verdict(row, row["target_ns"])), flush=True)


def print_preload(start, idle):
    print("\nstart-up of /bin/true: native %.2f ms, preloaded %.2f ms, added %+.2f ms" %
          (start["native_ms"], start["wrapped_ms"], start["added_ms"]))
    print("\n%-28s %14s %14s %12s" % ("preloaded and idle", "added max RSS", "added private",
                                      "CPU in use"))
    for row in idle:
        print("%-28s %10d KiB %10d KiB %10.3f %%  %s" % (
            row["name"], row["added_max_rss_kib"], row["added_private_kib"], row["cpu_percent"],
            verdict(row, row["target_cpu_percent"])))


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(TOP, "build"),
                   help="where librnice.so, bench/overhead_probe and bench/null/ are, and where "
                   "bench/overhead.json goes (default: %(default)s)")
    p.add_argument("--library", help="preload this instead of librnice.so")
    p.add_argument("--output", help="write the results there instead")
    p.add_argument("--rounds", type=int, default=9,
                   help="turns of native and wrapped per case (default 9)")
    p.add_argument("--samples", type=int, default=3, help="samples per process (default 3)")
    p.add_argument("--scale", type=float, default=1.0,
                   help="factor on the 1,000,000 operations of a sample")
    p.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)),
                   help="CPU to pin to (default: the last one, %(default)s)")
    p.add_argument("--only", default="", help="regular expression that picks cases by name")
    p.add_argument("--spawns", type=int, default=100, help="times /bin/true is run (default 100)")
    p.add_argument("--idle", type=float, default=3.0, help="seconds of idling (default 3)")
    p.add_argument("--timeout", type=int, default=120,
                   help="seconds one run may take (default 120)")
    p.add_argument("--no-instructions", dest="instructions", action="store_false")
    p.add_argument("--report-only", action="store_true", help="exit 0 even if a target is missed")
    opts = p.parse_args()
    opts.build = os.path.realpath(opts.build)
    opts.library = os.path.realpath(opts.library or os.path.join(opts.build, "librnice.so"))
    opts.output = opts.output or os.path.join(opts.build, "bench", "overhead.json")
    if opts.instructions and not shutil.which("valgrind"):
        print("overhead.py: no valgrind, no instruction counts", file=sys.stderr)
        opts.instructions = False
    return opts


def measure_all(bench, opts):
    print("%s, CPU %d, %d rounds of %d samples" % (cpu_model(), opts.cpu, opts.rounds,
                                                   opts.samples))
    print(HEAD % ("", "native", "wrapped", "added", "chunks", "added", "instr", "instr", "instr",
                  ""))
    print(HEAD % ("one operation of each path", "ns", "ns", "ns", "per op", "ns/chunk", "native",
                  "wrapped", "added", "target"))
    cases = []
    for case in CASES:
        if re.search(opts.only, case.name):
            cases.append(bench.measure(case))
            print_case(cases[-1])
    start, idle = bench.start_up(), bench.idle()
    print_preload(start, idle)
    return {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cpu": cpu_model(),
            "kernel": platform.release(), "load": os.getloadavg(), "rounds": opts.rounds,
            "samples": opts.samples, "cases": cases, "start_up": start, "idle": idle,
            "notes": bench.notes,
            "met": all(row["met"] for row in cases + idle)}


def main():
    opts = parse()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bench = None
    try:
        bench = Bench(opts)
        result = measure_all(bench, opts)
    except Failure as e:
        print("overhead.py: %s" % e, file=sys.stderr)
        return 2
    finally:
        if bench:
            bench.close()
    for line in bench.notes:
        print("note: %s" % line)
    with open(opts.output, "w", encoding="ascii") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    return 0 if result["met"] or opts.report_only else 1


if __name__ == "__main__":
    sys.exit(main())
