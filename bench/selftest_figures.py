"""Tests of Holdfast's own figures: what is made of values, and that a rig leaves nothing, whatever becomes of it. `selftest.py` runs them."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rig
import tree
from rows import GROUPS, ON_REQUEST, budgets, content, growth, names

HERE = Path(__file__).resolve().parent
# What `figures.py` asks of the binary, without a file system: a mount is another name of the volume. `bench create` gives a figure, all else nothing.
HOLDFAST = """\
#!/bin/sh
case "$1" in
--version) echo holdfast 0 ;;
format) mkdir "$2" ;;
mount) while [ $# -gt 2 ]; do shift; done; mount --bind "$1" "$2" ;;
bench)
    case "$2" in
    create) echo '{"figures": [{"name": "mknod", "counters_each": {"message batch": 0.002, "request mknod": 1}}]}' ;;
    ladder) echo stalled > "${0%/*}/stalled"; exec sleep 1000 ;;
    esac ;;
esac
"""
# Says so many lines, whatever there is; takes down how it was called.
FIND = """\
#!/bin/sh
echo "$@" > "${0%/*}/called"
while [ "$1" != -fprintf ]; do shift; done
printf ..... > "$2"
"""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Values(unittest.TestCase):
    def test_a_row_is_a_median_with_half_of_the_range(self) -> None:
        row = rig.compared("walk / ext4", "≤ 1.1", [2.0, 3.0, 4.0], [2.0, 2.0, 2.0], "3 s")
        self.assertEqual(row.line(), "| walk / ext4 | ≤ 1.1 | 1.5 ±33 % | 3 s | no |")
        self.assertEqual(row.sides, {"values": [2.0, 3.0, 4.0], "against": [2.0, 2.0, 2.0]})
        self.assertEqual(rig.Figure("memory", "≤ 400 B", [1234.4], unit=" B").line(), "| memory | ≤ 400 B | 1,234 B |  | no |")

    def test_a_goal_is_met_or_excused(self) -> None:
        cases = {("≤ 1.05", 1.05): "yes", ("≤ 1.05", 1.06): "no", ("≥ 0.9", 0.9): "yes", ("< 1", 1.0): "no", ("≤ 25 us", 24.0): "yes", ("", 9.0): "", ("no jump", 9.0): ""}
        for (goal, value), met in cases.items():
            self.assertEqual(rig.Figure("x", goal, [value]).met(), met, (goal, value))
        self.assertEqual(rig.Figure("x", "≥ 1.5, or CPU full", [1.2], excuse="CPU is full").met(), "CPU is full")
        self.assertEqual(rig.Figure("x", "≥ 1.5, or CPU full", [1.6], excuse="CPU is full").met(), "yes")

    def test_times_and_rates_beside_the_local_file_system(self) -> None:
        seconds = {"unit": "seconds", "values": [2.0, 1.0], "local": {"values": [1.0, 2.0]}}
        self.assertEqual((rig.against_local(seconds), rig.times_local(seconds)), ([0.5, 2.0], [2.0, 0.5]))
        rates = {"unit": "per second", "values": [50.0], "local": {"values": [100.0]}}
        self.assertEqual(rig.against_local(rates), [0.5])

    def test_spread_and_percentiles(self) -> None:
        self.assertEqual(rig.spread([90.0, 100.0, 120.0]), 0.15)
        self.assertEqual(rig.spread([0.0, 0.0]), 0.0)
        delays = [float(value) for value in range(1000, 0, -1)]
        self.assertEqual([rig.percentile(delays, share) for share in (0.5, 0.999, 1.0)], [501.0, 1000.0, 1000.0])

    def test_how_busy_the_processors_were(self) -> None:
        begun, ended = (rig.Ticks(f"cpu {text} 0 0\ncpu0 1 1") for text in ("10 0 10 80 0 0 0 0", "40 5 20 110 5 5 5 10"))
        self.assertEqual((begun.busy, ended.busy, ended.all), (20, 85, 200))
        self.assertEqual(ended.stolen_since(begun), 0.1)
        figure = {"median": 10_000.0, "cpu_us": {"client": 20.0, "daemon": None, "kernel": 80.0, "others": 20.0}}
        self.assertEqual([round(share, 3) for share in rig.busy_shares(figure, 2, 0.1)], [0.7, 0.1])
        self.assertEqual(rig.busy_shares(figure, 1, 0.1)[0], 1.0)

    def test_messages_by_kind(self) -> None:
        before, after = ({"by_label": {"messages_sent_total": kinds}} for kinds in ({"acquire": 5, "ping": 1}, {"acquire": 205, "ping": 2, "hello": 0}))
        self.assertEqual(names.sent(before, after), {"acquire": 200, "ping": 1})
        self.assertEqual(names.kinds_of({"acquire": 200, "release": 400, "ping": 1}, 200), "release 2, acquire 1")
        self.assertEqual(names.kinds_of({"ping": 1}, 200), "nothing")

    def test_growth_is_beside_the_first_step_and_a_logarithm(self) -> None:
        costs = {10_000: {"walk": [1.0, 3.0, 2.0]}, 100_000: {"walk": [2.0, 2.4, 2.2]}, 1_000_000: {"walk": [4.0, 4.0, 4.0]}}
        rows = growth.rows_of(costs)
        self.assertEqual([(row.goal, row.median(), row.met()) for row in rows], [("≤ 1.25", 1.1, "yes"), ("≤ 1.50", 2.0, "no")])


class Parsing(unittest.TestCase):
    def test_a_node_is_known_by_its_command_line(self) -> None:
        volume, place = Path("/x/volume"), Path("/x/a")

        def line(*words: str) -> bytes:
            return b"".join(word.encode() + b"\0" for word in words)

        self.assertTrue(rig.is_node(line("holdfast", "mount", "--report-ready", "--", "/x/volume", "/x/a"), volume, place))
        self.assertTrue(rig.is_node(line("holdfast", "mount", "--report-ready", "-o", "lazysize", "--", "/x/volume", "/x/a"), volume, place))
        for other in (
            line("holdfast", "mount", "--report-ready", "--", "/x/volume", "/x/b"),
            line("holdfast", "mount", "--report-ready", "--", "/y/volume", "/x/a"),
            line("holdfast", "mount", "/x/volume", "/x/a"),
            line("vi", "/x/volume", "/x/a"),
            b"",
        ):
            self.assertFalse(rig.is_node(other, volume, place), other)

    def test_memory_and_ticks_of_a_process(self) -> None:
        self.assertEqual(rig.resident("Name:\thold\nVmHWM:\t 9 kB\nVmRSS:\t  18816 kB\nThreads:\t1\n"), 18816 * 1024)
        with self.assertRaisesRegex(RuntimeError, "has ended"):
            rig.resident("Name:\thold\nState:\tZ (zombie)\n")
        self.assertEqual(budgets.ticks_of("7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 9 9 20 0"), 325)
        self.assertGreaterEqual(budgets.ticks(os.getpid()), 0)

    def test_rates_of_fio(self) -> None:
        document = {"jobs": [{"error": 0, "read": {"iops": 0.0}, "write": {"iops": 130.5}}]}
        self.assertEqual(content.fio_rate("fio: a note\n" + json.dumps(document)), 130.5)
        for broken in ({"error": 5}, {"write": {"iops": 0}}):
            with self.assertRaises(RuntimeError):
                content.fio_rate(json.dumps({"jobs": [{**document["jobs"][0], **broken}]}))

    def test_fio_syncs_writes_only(self) -> None:
        write, read = (content.fio_job(Path("/x"), pattern, 1, 10, 8, 0) for pattern in ("randwrite", "randread"))
        self.assertIn("--fsync=1", write)
        self.assertIn("--fsync=0", read)
        self.assertIn("--direct=1", read)

    def test_every_group_has_a_name_that_is_taken(self) -> None:
        import figures

        self.assertEqual(figures.group_names("walk,uring"), ["walk", "uring"])
        with self.assertRaisesRegex(Exception, "no such group: wlak"):
            figures.group_names("walk,wlak")
        self.assertLessEqual(ON_REQUEST, set(GROUPS))
        self.assertEqual(figures.warnings({"runs": 5, "load": 0.4, "cores": 2}), [])
        self.assertEqual(len(figures.warnings({"runs": 2, "load": 3.0, "cores": 2})), 2)


class Trees(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.place = Path(scratch.name)

    def all_below(self, root: Path) -> int:
        return 1 + sum(1 for _ in root.rglob("*"))

    def test_a_tree_has_what_was_asked_for(self) -> None:
        for name, files, directories, inodes in (("a", 250, None, 255), ("b", 0, 150, 153), ("c", 7, 3, 12)):
            root = self.place / name
            self.assertEqual(tree.make_tree(root, files, directories), inodes)
            self.assertEqual(self.all_below(root), inodes)

    def test_a_tree_grows_and_every_file_is_where_it_is_said_to_be(self) -> None:
        root = self.place / "tree"
        root.mkdir()
        first, _ = growth.grow(root, 0, 1_000, 2)
        second, each = growth.grow(root, 1_000, 2_000, 2)
        self.assertEqual((1 + first + second, len(each)), (self.all_below(root), 2))
        self.assertTrue(all(tree.file_of(root, file).exists() for file in (0, 999, 1_000, 1_999)))
        chosen = growth.some_files(root, 2_000, 1_000)
        self.assertEqual((len({path.parent for path in chosen}), all(path.exists() for path in chosen)), (10, True))

    def test_a_walk_counts_what_it_finds(self) -> None:
        inodes = tree.make_tree(self.place / "tree", 30)
        both = [self.place / "tree", self.place / "tree"]
        self.assertGreater(tree.find_ls(*both, inodes=inodes, scratch=self.place), 0)
        with self.assertRaisesRegex(RuntimeError, f"found {inodes} of {inodes + 1}"):
            tree.find_ls(*both, inodes=inodes + 1, scratch=self.place)

    def test_a_find_that_finds_fewer_is_an_error_though_it_ends_well(self) -> None:
        executable(self.place / "find", FIND)
        with mock.patch.dict(os.environ, PATH=f"{self.place}:{os.environ['PATH']}"):
            tree.find_ls(self.place, inodes=5, scratch=self.place)
            with self.assertRaisesRegex(RuntimeError, "exit code 0, found 5 of 6"):
                tree.find_ls(self.place, inodes=6, scratch=self.place)
        self.assertIn(" -ls ", (self.place / "called").read_text())

    def test_direct_reads_are_timed_one_by_one(self) -> None:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
            path = Path(place) / "file"
            content.fill(path, content.MIB)
            delays = content.direct_reads(path, content.MIB, 0.05)
        self.assertTrue(delays and all(delay > 0 for delay in delays))


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class WholeFigures(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(scratch.cleanup)
        self.place = Path(scratch.name)
        executable(self.place / "holdfast", HOLDFAST)

    def start(self, groups: str) -> "subprocess.Popen[str]":
        fixed = ["--holdfast", self.place / "holdfast", "--dir", self.place, "--out", self.place / "out.json", "--runs", "1"]
        command = [sys.executable, HERE / "figures.py", *fixed, "--only", groups]
        return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def assert_nothing_is_left(self) -> None:
        self.assertEqual([path.name for path in self.place.glob("holdfast-figures-*")], [])
        self.assertNotIn(str(self.place), Path("/proc/mounts").read_text())
        self.assertNotIn(str(self.place), subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout)

    def test_a_group_that_fails_does_not_stop_the_rest(self) -> None:
        process = self.start("append,messages")
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, said)
        self.assertRegex(said, r"\| append \| \| not measured \| JSONDecodeError: ")
        self.assertIn("| messages for 100 mknods, not the master | < 1 | 0.2 | 150,000 names | yes |", said)
        document = json.loads((self.place / "out.json").read_text())
        self.assertEqual([figure["values"] for figure in document["messages"]], [[0.2]])
        self.assert_nothing_is_left()

    def test_a_volume_that_cannot_be_made_leaves_nothing(self) -> None:
        executable(self.place / "holdfast", '#!/bin/sh\n[ "$1" = --version ] || { echo no room >&2; exit 1; }\n')
        process = self.start("messages")
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, said)
        self.assertIn("no room", said)
        self.assert_nothing_is_left()

    def test_broken_off_leaves_nothing(self) -> None:
        process = self.start("stream")
        self.assertTrue(rig.until((self.place / "stalled").exists, 30))
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
