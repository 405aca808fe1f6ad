#!/usr/bin/env python3
"""The figures of docs/performance.md: Holdfast beside ext4, and two nodes beside one, in one run.

usage: figures.py --holdfast BINARY --out FILE.json [--dir DIR] [--runs N] [--scale F] [--only ROW,...]

Makes a file system of its own, ext4 in a file below DIR (default /var/tmp), on a loop device; the volume and the
directory for comparison both lie on it, so that neither meets the other's history or a disk of its own. Sides
take turns, run by run. Prints a table in Markdown, with the median of the runs and half of their range as a
share of it. Needs root. Leaves nothing behind.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

IMAGE_GIB = 24
# A node that was unmounted still ends; its volume is on the disk that is unmounted after it.
TRIES = 40


class Figure:
    """One row: what is measured, its goal, and the ratios of the runs."""

    def __init__(self, name: str, goal: str, ratios: list[float], detail: str = "") -> None:
        self.name, self.goal, self.ratios, self.detail = name, goal, ratios, detail

    def median(self) -> float:
        return statistics.median(self.ratios)

    def spread(self) -> float:
        return (max(self.ratios) - min(self.ratios)) / 2 / self.median() if self.median() else 0.0

    def line(self) -> str:
        spread = f" ±{self.spread() * 100:.0f} %" if len(self.ratios) > 1 else ""
        return f"| {self.name} | {self.goal} | {self.median():.3g}{spread} | {self.detail} |"


class Bench:
    """A volume on a fresh file system, with one node or two."""

    def __init__(self, binary: str, base: pathlib.Path, runs: int, scale: float, options: str) -> None:
        self.binary, self.base, self.runs, self.scale, self.options = binary, base, runs, scale, options
        self.disk, self.mounts = base / "disk", [base / "a", base / "b"]
        self.volume, self.local = self.disk / "volume", self.disk / "local"
        self.up: list[pathlib.Path] = []

    def __enter__(self) -> "Bench":
        image = self.base / "image"
        run("truncate", "-s", f"{IMAGE_GIB}G", image)
        run("mkfs.ext4", "-q", "-F", image)
        for place in [self.disk, *self.mounts]:
            place.mkdir()
        run("mount", "-o", "loop", image, self.disk)
        self.local.mkdir()
        run(self.binary, "format", self.volume)
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes(0)
        for _ in range(TRIES):
            if subprocess.run(["umount", self.disk], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.5)
        subprocess.run(["umount", "-l", self.disk], check=False)

    def nodes(self, count: int) -> None:
        """Mounts or unmounts until so many nodes are up; those that stay keep what they have."""
        while len(self.up) > count:
            place = self.up.pop()
            if subprocess.run(["umount", place], timeout=120, check=False).returncode != 0:
                subprocess.run(["umount", "-l", place], check=False)
        while len(self.up) < count:
            place = self.mounts[len(self.up)]
            options = ["-o", self.options] if self.options else []
            run(self.binary, "mount", *options, self.volume, place)
            self.up.append(place)

    def fresh(self, count: int) -> None:
        """Has so many nodes that know nothing."""
        self.nodes(0)
        self.nodes(count)

    def bench(self, what: str, *args: object, runs: int | None = None) -> dict:
        command = [self.binary, "bench", what, *map(str, args), "--runs", str(runs or self.runs), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}

    def count(self, usual: int) -> int:
        return max(int(usual * self.scale), 100)


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def against_local(figure: dict) -> list[float]:
    """How much of the local file system's figure each run had: above 1 is better."""
    pairs = zip(figure["values"], figure["local"]["values"])
    return [of / local if figure["unit"] == "per second" else local / of for of, local in pairs]


def times_local(figure: dict) -> list[float]:
    """How many times the local file system's time each run took."""
    return [1 / ratio for ratio in against_local(figure)]


def create(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    files = bench.count(20_000)
    goals = {"mknod": "≥ 1.0", "create": "≥ 0.6", "mkdir": "≥ 0.7"}
    figures = bench.bench("create", bench.mounts[0], "--local", bench.local, "--files", files, "--kinds", ",".join(goals))
    rows = []
    for kind, goal in {**goals, "mknod unlink": "≥ 0.6"}.items():
        figure = figures[kind]
        detail = f"{figure['median']:,.0f} a second, ext4 {figure['local']['median']:,.0f}"
        rows.append(Figure(f"{kind} a second / ext4", goal, against_local(figure), detail))
    return rows


def together(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    files = bench.count(40_000)
    rows = []
    for kind in ("mknod", "create"):
        alone, own, shared = [], [], []
        for _ in range(bench.runs):
            args = ["--kinds", kind, "--files", files]
            alone += bench.bench("create", bench.mounts[0], *args, runs=1)[kind]["values"]
            own += bench.bench("create", *bench.mounts, "--processes", 2, "--own", *args, runs=1)[kind]["values"]
            shared += bench.bench("create", *bench.mounts, "--processes", 2, *args, runs=1)[kind]["values"]
        rates = f"{statistics.median(own):,.0f}, alone {statistics.median(alone):,.0f} a second"
        rows.append(Figure(f"{kind}, two nodes in own directories / one alone", "≥ 1.5", ratios(own, alone), rates))
        rates = f"{statistics.median(shared):,.0f} a second"
        rows.append(Figure(f"{kind}, two nodes in one directory / own", "≥ 0.3", ratios(shared, own), rates))
    return rows


def messages(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    files = bench.count(150_000)
    figure = bench.bench("create", bench.mounts[1], "--kinds", "mknod", "--files", files, runs=1)["mknod"]
    each = sum(count for name, count in figure["counters_each"].items() if name.startswith("message "))
    return [Figure("messages for 100 mknods, not the master", "< 1", [each * 100], f"{files:,} names")]


def untar(bench: Bench) -> list[Figure]:
    one: dict[str, list[float]] = {}
    two: dict[str, list[float]] = {}
    local: list[float] = []
    files = bench.count(16_000)
    for _ in range(bench.runs):
        for count, values in ((1, one), (2, two)):
            bench.fresh(count)
            figures = bench.bench("tar", bench.mounts[0], "--local", bench.local, "--files", files, runs=1)
            for name in ("unpack", "du", "du again"):
                values.setdefault(name, []).extend(figures[name]["values"])
            if count == 2:
                local += times_local(figures["unpack"])
    return [
        Figure("untar, second node mounted / single node", "≤ 1.03", ratios(two["unpack"], one["unpack"])),
        Figure("second du, two nodes / one", "≤ 1.05", ratios(two["du again"], one["du again"])),
        Figure("untar / ext4", "≤ 3", local),
    ]


def walk(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    files = bench.count(393_604)
    figures = bench.bench("walk", *bench.mounts, "--local", bench.local, "--files", files)
    value = {name: figure["values"] for name, figure in figures.items()}
    warm, cold = value["warm"], value["cold"]

    def row(name: str, goal: str, of: str, to: list[float]) -> Figure:
        return Figure(name, goal, ratios(value[of], to), f"{statistics.median(value[of]):.2f} s")

    return [
        Figure("walk, warm / ext4 warm", "≤ 1.1", times_local(figures["warm"]), f"{statistics.median(warm):.2f} s"),
        Figure("walk, kernel's caches dropped / ext4 cold", "≤ 1.3", times_local(figures["cold"]), f"{statistics.median(cold):.2f} s"),
        row("first walk from the other node / own cold walk", "≤ 1.0", "first from the other", cold),
        row("walk again, back / warm", "≤ 1.05", "back", warm),
        row("from the other node after a chmod of all / own cold walk", "≤ 1.0", "from the other after it", cold),
        row("both at once / one warm", "≤ 1.3", "both at once", warm),
        row("from a new node / own cold walk", "", "from a new node", cold),
    ]


def latency(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    calls = "write+fsync,flock,read"
    figures = bench.bench("latency", bench.mounts[0], "--local", bench.local, "--calls", calls, "--count", bench.count(1_000))
    rows = []
    for name, goal in (("write+fsync", "≤ 1.5"), ("flock", "(≤ 25 us)"), ("read", "")):
        figure = figures[name]
        scale = 1e6 if figure["unit"] == "seconds" else 1.0
        detail = f"p50 {figure['median'] * scale:.1f} us, ext4 {figure['local']['median'] * scale:.1f}"
        rows.append(Figure(f"{name} p50 / ext4", goal, times_local(figure), detail))
    return rows


def stream(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    size = f"{bench.count(1_024)}MiB"
    figures = bench.bench("ladder", *bench.mounts, "--local", bench.local, "--size", size)
    rows = []
    for what, goal in (("write", "≥ 0.9"), ("read", "≥ 0.9")):
        local = figures[f"{what}, local"]["values"]
        for rung in ("first mount", "second mount"):
            values = figures[f"{what}, {rung}"]["values"]
            detail = f"{statistics.median(values):,.0f} MB/s, ext4 {statistics.median(local):,.0f}"
            rows.append(Figure(f"{what}, {rung} / ext4", goal, ratios(values, local), detail))
    return rows


def ratios(values: list[float], others: list[float]) -> list[float]:
    return [value / other for value, other in zip(values, others)]


ROWS = {
    "untar": untar,
    "create": create,
    "together": together,
    "messages": messages,
    "walk": walk,
    "latency": latency,
    "stream": stream,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdfast", required=True, help="the binary, built for release")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where all values go, as JSON")
    parser.add_argument("--dir", default="/var/tmp", help="where the file system is made; 24 GiB, sparse")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the usual numbers of files and calls")
    parser.add_argument("--only", default=",".join(ROWS), help="groups of rows: " + ", ".join(ROWS))
    parser.add_argument("--options", default="", help="mount options of all nodes")
    args = parser.parse_args()
    binary = str(pathlib.Path(args.holdfast).resolve())
    result: dict[str, object] = {}
    print(f"\n{args.runs} runs, scale {args.scale:g}\n\n| figure | goal | ratio | measured |\n|---|---|---|---|", flush=True)
    is_whole = True
    with contextlib.ExitStack() as stack:
        base = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-figures-", dir=args.dir)))
        bench = stack.enter_context(Bench(binary, base, args.runs, args.scale, args.options))
        for group in args.only.split(","):
            try:
                figures = ROWS[group](bench)
            except (RuntimeError, KeyError, subprocess.SubprocessError) as error:
                print(f"| {group} | | not measured: {error!r} | |", flush=True)
                is_whole = False
                continue
            for figure in figures:
                print(figure.line(), flush=True)
            result[group] = [vars(figure) for figure in figures]
            args.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0 if is_whole else 3


if __name__ == "__main__":
    sys.exit(main())
