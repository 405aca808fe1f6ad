#!/usr/bin/python3
"""Tests of the comparison itself: what it makes of results, and that nothing of what it starts is left; and of the figures of our own. As root all of them are run.

usage: selftest.py
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

import report
from report import Record
from selftest_figures import Parsing, Trees, Values, WholeFigures  # noqa: F401 (found by unittest here)
from systems.host import ADDRESS, Failed, Host, become_reaper, descendants

HERE = Path(__file__).resolve().parent
ROOT = os.geteuid() == 0
# A harness with the interface that --load wants: `quick` ends at once, `stall` not before the limit, and leaves a child to be found.
HARNESS = """\
import json, subprocess, sys, time
out, first, second = sys.argv[1:4]
workload = sys.argv[sys.argv.index("--only") + 1]
if workload == "stall":
    subprocess.Popen(["sleep", "1000"])
    time.sleep(1000)
json.dump({"quick": {"mknod_per_s": 100, "same": [int(first == second), 1]}} if workload == "quick" else {"raises": {"failed": "KeyError()"}}, open(out, "w"))
"""


def records(system: str, *rates: float, workload: str = "create", key: str = "mknod_per_s") -> list[Record]:
    return [Record(run, system, workload, result={key: rate}) for run, rate in enumerate(rates, 1)]


FACTS = {
    "measured": {},
    "systems": {name: {"version": "1", "settings": ["as it is"], "shared": name != "ext4", "durable": name != "third"} for name in ("ext4", "holdfast", "other", "third")},
}


class Figures(unittest.TestCase):
    def test_values_of_a_harness(self) -> None:
        tree = {
            "n": 10,
            "mknod_per_s": 5,
            "write": {"s": 2.0, "rc": 0, "MiB_s": 32.0},
            "rm": {"s": 1.0, "rc": 1, "err": "no\nway"},
            "flock": {"n": 9, "mean_us": 3, "p50_us": 1.5, "p99_us": 9, "max_us": 99},
            "chmod_seen": {"stale": 3, "of": 300},
            "kept": [7, 10],
            "deep": {"n0": {"s": 0.5, "lines": 11}, "n1": {"s": 0.1, "lines": 9}},
        }
        found = {value.name: value for value in report.values_of(Record(1, "other", "any", result=tree))}
        shown = {name: (value.number, value.unit, value.higher_is_better) for name, value in found.items()}
        self.assertEqual(
            shown,
            {
                "mknod": (5, "/s", True),
                "write": (32.0, "MiB/s", True),
                "rm": (1.0, "s", False),
                "flock p50": (1.5, "us", False),
                "flock p99": (9, "us", False),
                "chmod seen": (3, "stale", False),
                "kept": (7, "kept", True),
                "deep n0": (0.5, "s", False),
                "deep n1": (0.1, "s", False),
            },
        )
        self.assertEqual(found["deep n1"].wrong, "9 of 11 lines")
        self.assertEqual(found["rm"].wrong, "exit code 1: no way")

    def test_values_of_bench(self) -> None:
        figures = [{"name": "flock", "unit": "seconds", "median": 5e-6}, {"name": "mknod", "unit": "per second", "median": 9}]
        found = list(report.values_of(Record(1, "other", "bench-latency", result={"bench": "latency", "figures": figures})))
        self.assertEqual([(v.name, round(v.number, 3), v.higher_is_better) for v in found], [("flock, p50", 5.0, False), ("mknod", 9, True)])

    def test_who_is_ahead(self) -> None:
        apart = report.rows_of(records("holdfast", 100, 101, 99) + records("other", 50, 51, 49))[0]
        self.assertEqual(apart.ratio("other"), 2.0)
        self.assertEqual(apart.best(["holdfast", "other"]), ["holdfast"])
        close = report.rows_of(records("holdfast", 100, 120, 80) + records("other", 110, 130, 90))[0]
        self.assertEqual(close.best(["holdfast", "other"]), ["other", "holdfast"])
        one_run = report.rows_of(records("holdfast", 100) + records("other", 140) + records("third", 210))[0]
        self.assertEqual(one_run.best(["holdfast", "other", "third"]), ["third", "other"])

    def test_counts_are_exact_and_zero_is_no_division(self) -> None:
        stale = [Record(1, name, "coher", result={"seen": {"stale": count, "of": 300}}) for name, count in (("holdfast", 0), ("other", 1), ("third", 0))]
        row = report.rows_of(stale)[0]
        self.assertEqual(row.best(["holdfast", "other", "third"]), ["holdfast", "third"])
        self.assertEqual((row.ratio("other"), row.ratio("third")), (float("inf"), 1.0))
        json.loads(report.document(stale, FACTS))

    def test_what_is_wrong_does_not_count(self) -> None:
        walks = [Record(1, name, "find", result={"a": {"s": s, "lines": 9}, "b": {"s": s, "lines": n}}) for name, s, n in (("holdfast", 2, 9), ("other", 1, 8))]
        row = next(row for row in report.rows_of(walks) if row.name == "b")
        self.assertEqual(row.best(["holdfast", "other"]), ["holdfast"])
        self.assertIn("wrong", report.cell_text(row, "other"))

    def test_what_stalls_in_most_runs_is_not_ahead_by_its_good_one(self) -> None:
        stalled = [Record(run, "other", "create", problem="not done after 150 s") for run in (2, 3)]
        all_of_it = [*records("holdfast", 100, 101, 99), *records("other", 900), *stalled]
        row = report.rows_of(all_of_it)[0]
        self.assertEqual(row.best(["holdfast", "other"]), ["holdfast"])
        self.assertEqual((row.ratio("other"), report.cell_text(row, "other")), (None, "900 in 1 of 3 runs"))
        self.assertIn("| holdfast |", report.markdown(all_of_it, FACTS))
        found = json.loads(report.document(all_of_it, FACTS))["figures"][0]
        self.assertEqual((found["ahead"], found["systems"]["other"]["failed_runs"]), (["holdfast"], 2))
        ours = report.rows_of([*records("other", 10, 10, 10), *records("holdfast", 100), Record(2, "holdfast", "create", problem="failed: no")])
        self.assertEqual(ours[0].best(["holdfast", "other"]), ["other"])
        lines = report.standing(ours, ["holdfast", "other"], set())
        self.assertIn("- create, mknod: other ahead, Holdfast has no figure (100 in 1 of 2 runs)", lines)

    def test_who_answers_fsync_from_memory_is_named(self) -> None:
        sync = [*records("holdfast", 9, key="write+fsync_s"), *records("third", 1, key="write+fsync_s"), *records("third", 300), *records("holdfast", 100)]
        lines = report.markdown(sync, FACTS).splitlines()
        told = [line.endswith("not on disk then: third") for line in lines if line.startswith("- create, ")]
        self.assertEqual(told, [True, False])

    def test_the_report_names_what_is_behind_and_what_failed(self) -> None:
        all_of_it = [*records("ext4", 900), *records("holdfast", 100), *records("other", 300), Record(1, "third", "create", problem="not done after 150 s")]
        text = report.markdown(all_of_it, FACTS)
        self.assertIn("- create, mknod: other ahead, Holdfast 3 times worse (100)", text)
        self.assertIn("| not done |", text)
        self.assertIn("- run 1, third, create: not done after 150 s", text)


@unittest.skipUnless(ROOT, "needs root")
class Hosts(unittest.TestCase):
    def setUp(self) -> None:
        become_reaper()
        self.place = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self.host = Host(self.place / "host", 0)

    def tearDown(self) -> None:
        self.host.stop()
        self.place.rmdir()

    def test_daemons_and_mounts_are_gone_after_stop(self) -> None:
        self.host.start("daemon", "sh", "-c", "setsid sleep 1000 & exec setsid sh -c 'sleep 1000 & trap : TERM; while :; do sleep 1; done'")
        self.host.run("mount", "-t", "tmpfs", "none", self.host.mounts[0])
        self.host.wait("three of them", lambda: len(descendants()) >= 3)
        os.setpriority(os.PRIO_PROCESS, descendants()[0], -5)
        self.assertEqual(len(self.host.level_priorities()), 1)
        self.assertEqual(self.host.level_priorities(), [])
        begun = time.monotonic()
        self.host.stop()
        self.assertEqual(descendants(), [])
        self.assertFalse(self.host.is_mounted(self.host.mounts[0]))
        self.assertFalse(self.host.place.exists())
        self.assertLess(time.monotonic() - begun, 20)

    def test_a_private_network_has_loopback_only(self) -> None:
        self.host.private_network()
        links = self.host.run("ip", "-brief", "link").strip().splitlines()
        self.assertEqual([line.split()[0] for line in links], ["lo"])
        self.assertIn(ADDRESS, self.host.run("ip", "address"))
        with self.assertRaisesRegex(Failed, "exit code"):
            self.host.run("ip", "link", "show", "eth0")


@unittest.skipUnless(ROOT, "needs root")
class WholeRuns(unittest.TestCase):
    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(dir="/var/tmp"))
        (self.place / "harness.py").write_text(HARNESS)

    def tearDown(self) -> None:
        subprocess.run(["rm", "-rf", str(self.place)], check=True)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        fixed = ["--load", self.place / "harness.py", "--holdfast", "/bin/true", "--only", "ext4", "--no-install", "--dir", self.place, "--out", self.place / "out"]
        command = [sys.executable, HERE / "rivals.py", *fixed, *arguments]
        return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def left(self) -> list[str]:
        return [path.name for path in self.place.glob("holdfast-rivals-*")]

    def test_stalled_and_failed_workloads_do_not_stop_the_rest(self) -> None:
        process = self.start("--workloads", "stall,raises,quick", "--runs", "2", "--limit", "1")
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, said)
        document = json.loads((self.place / "out/report.json").read_text())
        figures = {figure["name"]: figure["systems"]["ext4"]["values"] for figure in document["figures"]}
        self.assertEqual(figures, {"mknod": [100, 100], "same": [1, 1]})
        self.assertEqual([problem["workload"] for problem in document["problems"]], ["stall", "stall", "raises", "raises"])
        self.assertEqual(self.left(), [])

    def test_broken_off_leaves_nothing_but_the_results_so_far(self) -> None:
        process = self.start("--workloads", "quick,stall", "--runs", "1")
        assert process.stdout is not None
        while "quick" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("broken off", said)
        self.assertTrue((self.place / "out/report.md").exists())
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    unittest.main()
