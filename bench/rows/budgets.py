"""What a node may cost: memory, its start, its end, and nothing at all while it has nothing to do."""
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rig import Bench, Figure, run
from tree import IN_DIRECTORY, find_ls, make_leaf, make_tree

IDLE_SECONDS = 20
UNFLUSHED = 100_000


def budgets(bench: Bench) -> list[Figure]:
    return [*memory(bench), *idle(bench), *unmount(bench), *start(bench)]


def memory(bench: Bench) -> list[Figure]:
    """What a node grows by that walks a tree which another has made.

    Files cost an inode and a name; each with a second name two tokens besides, so that what a token takes is the difference of two trees of as many
    inodes. Directories have a token each, and tables of their own.
    """
    inodes = bench.count(100_000, 10_000)
    files = inodes - inodes // 100
    counts: dict[str, int] = {}
    grown: dict[str, list[float]] = {"files": [], "linked": [], "directories": []}
    at_master: dict[str, list[float]] = {"files": [], "linked": [], "directories": []}
    gauges: dict[str, dict] = {}
    for name, directories in (("files", None), ("linked", None), ("directories", inodes)):
        # On a volume of its own: what is brought in advance of a walk would be of the other tree.
        bench.new_volume()
        bench.nodes(1)
        tree = bench.mounts[0] / "tree"
        counts[name] = make_tree(tree, 0 if directories else files, directories)
        if name == "linked":
            link_all(tree, bench.mounts[0] / "links")
        for _ in range(bench.runs):
            bench.fresh(2)
            before = [bench.memory(place) for place in bench.mounts]
            find_ls(bench.mounts[1] / "tree", inodes=counts[name], scratch=bench.base)
            master, node = (bench.memory(place) - was for place, was in zip(bench.mounts, before))
            gauges[name] = bench.counters(bench.mounts[1])
            if gauges[name]["cache_entries"] < counts[name]:
                raise RuntimeError(f"of {counts[name]} inodes walked the node keeps {gauges[name]['cache_entries']} entries")
            grown[name].append(node)
            at_master[name].append(master)
    tokens = {name: gauge["tokens_held"] for name, gauge in gauges.items()}
    counted = gauges["files"]["cache_memory_bytes"] / counts["files"]
    each, each_master = (per_inode(values["files"], counts["files"]) for values in (grown, at_master))
    more = tokens["linked"] - tokens["files"]
    per_token, per_token_master = (
        [(linked - plain) / more for linked, plain in zip(values["linked"], values["files"])] for values in (grown, at_master)
    )
    per_directory = per_inode(grown["directories"], counts["directories"])
    detail = f"{counts['files']:,} inodes, {tokens['files']:,} tokens; the node counts {counted:.0f} B, the master grew by {statistics.median(each_master):.0f}"
    beside = f"{more:,} tokens of {files:,} files with two names, beside as many with one"
    whole = f"{counts['directories']:,} directories, {tokens['directories']:,} tokens"
    return [
        Figure("memory for a cached inode and its name", "≤ 400 B", each, detail, unit=" B", sides={"master": each_master}),
        Figure("memory for a token, the node that holds it", "≤ 200 B", per_token, beside, unit=" B"),
        Figure("memory for a token, the master", "≤ 200 B", per_token_master, beside, unit=" B"),
        Figure("memory for a cached directory, its name and its token", "≤ 600 B", per_directory, whole, unit=" B"),
    ]


def link_all(tree: Path, links: Path) -> None:
    """Gives each file a second name, in one directory for each of the tree."""
    links.mkdir()
    for number, (place, _, names) in enumerate(os.walk(tree)):
        beside = links / str(number)
        beside.mkdir()
        for name in names:
            os.link(f"{place}/{name}", beside / name)


def per_inode(grown: list[float], count: int) -> list[float]:
    return [value / count for value in grown]


def idle(bench: Bench) -> list[Figure]:
    """CPU time of nodes that nobody asks for anything, once what was to be flushed is."""
    lasts = max(IDLE_SECONDS * min(bench.scale, 1), 4)
    bench.fresh(2)
    (bench.mounts[0] / "made").touch()
    for place in bench.mounts:
        os.stat(place / "made")
    time.sleep(3)
    pids = [bench.daemon(place) for place in bench.mounts]
    before = [ticks(pid) for pid in pids]
    time.sleep(lasts)
    used = [(ticks(pid) - was) / os.sysconf("SC_CLK_TCK") / lasts * 100 for pid, was in zip(pids, before)]
    return [Figure(f"CPU of an idle node, {who}", "≤ 1 %", [share], f"over {lasts:.0f} s", unit=" %") for who, share in zip(("master", "other"), used)]


def ticks(pid: int | None) -> int:
    return ticks_of(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"))


def ticks_of(stat: str) -> int:
    """Ticks of a process, its own and the kernel's for it, in a /proc/PID/stat; the name may hold anything."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def unmount(bench: Bench) -> list[Figure]:
    """With nothing of what was changed on the disk: `commit=` is at its longest, and the node ends right after the last change.

    The master has been told of most by then; the log of who made them keeps them until they are durable.
    """
    count = bench.count(UNFLUSHED)
    rows = []
    for number, who in enumerate(("master", "other")):
        took: list[float] = []
        seen: dict[str, list[float]] = {"mutations_total": [], "mutations_pending": [], "log_bytes": []}
        for _ in range(bench.runs):
            bench.new_volume()
            bench.nodes(2, "commit=300,log_memory=256M")
            place = bench.mounts[number]
            counters = fill_log(bench, place, count)
            for name, values in seen.items():
                values.append(counters[name])
            began = time.monotonic()
            run(bench.binary, "umount", place)
            took.append(time.monotonic() - began)
            bench.nodes(0)
        made, pending, log = (statistics.median(values) for values in seen.values())
        detail = f"{made:,.0f} changes, {log / made:.0f} B of log each; {pending:,.0f} of them the master had not been told of"
        rows.append(Figure(f"unmount with {count:,} changes unflushed, {who}", "", took, detail, unit=" s", sides=seen))
    return rows


def fill_log(bench: Bench, place: Path, count: int) -> dict:
    """Makes names until so many changes are made; the counters then."""
    root = place / "tree"
    root.mkdir()
    for leaf in range(count // IN_DIRECTORY + 1):
        make_leaf(root, leaf, range(IN_DIRECTORY))
        if leaf % 20 == 19 and bench.counters(place)["mutations_total"] >= count:
            break
    return bench.counters(place)


def start(bench: Bench) -> list[Figure]:
    """From `holdfast mount` to its return, on a volume of many files that nobody else has mounted."""
    files = bench.count(1_000_000)
    place = bench.mounts[0]
    bench.new_volume()
    bench.nodes(1)
    make_tree(place / "tree", files)
    bench.nodes(0)
    first = mount(bench)
    ways: dict[str, Callable[[], None]] = {
        "a clean unmount": lambda: bench.nodes(0),
        "kill -9": lambda: bench.kill(place),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(bench.runs):
        for way, end in ways.items():
            # Something to recover, some of it not yet on the disk.
            make_tree(place / f"{way} {number}", 2_000)
            end()
            took[way].append(mount(bench))
            os.listdir(place)
    rows = {"they were made in one go": [first], **took}
    return [Figure(f"mount of {files:,} files after {way}", "≤ 1 s", values, unit=" s") for way, values in rows.items()]


def mount(bench: Bench) -> float:
    began = time.monotonic()
    bench.nodes(1)
    return time.monotonic() - began
