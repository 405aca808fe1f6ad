"""What more files cost: each step's work for an inode, beside that of the first step."""
import math
import os
import random
import statistics
import time
from pathlib import Path

from rig import Bench, Figure
from tree import IN_DIRECTORY, file_of, find_ls, make_leaf

STEPS = (10_000, 100_000, 1_000_000, 10_000_000)


def growth(bench: Bench) -> list[Figure]:
    """One tree that grows tenfold with each step; looked up and walked by a node that knows nothing, with nothing in the kernel's caches."""
    root = bench.mounts[0] / "tree"
    first, *_ = steps = [bench.count(usual, usual // 10) // IN_DIRECTORY * IN_DIRECTORY for usual in STEPS if usual <= bench.growth_to]
    inodes, files = 1, 0
    costs: dict[int, dict[str, list[float]]] = {}
    bench.nodes(1)
    root.mkdir()
    for step in steps:
        bench.nodes(1)
        made, each = grow(root, files, step, bench.runs)
        inodes, files = inodes + made, step
        costs[step] = {"create": each, "lookup": [], "walk": [], "memory": []}
        for _ in range(bench.runs):
            for name, value in looked_at(bench, root, some_files(root, files, first), inodes).items():
                costs[step][name].append(value)
    beyond = [f"{usual:,}" for usual in STEPS if usual > bench.growth_to]
    if beyond:
        bench.note(f"growth: not to {', '.join(beyond)} files (--growth-to)")
    return rows_of(costs)


def grow(root: Path, begin: int, end: int, parts: int) -> tuple[int, list[float]]:
    """Makes files `begin..end`: how many inodes that are, and the time for each, in us, in the last `parts` tenths of the work."""
    leaves = range(begin // IN_DIRECTORY, end // IN_DIRECTORY)
    tenth = max(len(leaves) // 10, 1)
    total, each = 0, []
    for some in (leaves[at : at + tenth] for at in range(0, len(leaves), tenth)):
        began = time.monotonic()
        made = sum(make_leaf(root, leaf, range(leaf * IN_DIRECTORY, (leaf + 1) * IN_DIRECTORY)) for leaf in some)
        each.append((time.monotonic() - began) / made * 1e6)
        total += made
    return total, each[-parts:]


def some_files(root: Path, files: int, first: int) -> list[Path]:
    """A file of each directory in one of a hundred directories: as many as the first step has, so that each costs the same look at its parents."""
    leaves = min(first // IN_DIRECTORY, IN_DIRECTORY)
    above = random.randrange(max(files // IN_DIRECTORY // IN_DIRECTORY, 1)) * IN_DIRECTORY
    return [file_of(root, leaf * IN_DIRECTORY + random.randrange(IN_DIRECTORY)) for leaf in range(above, above + leaves)]


def looked_at(bench: Bench, root: Path, chosen: list[Path], inodes: int) -> dict[str, float]:
    """Of a cold node: time for each lookup and for each inode of a walk, in us, and bytes for each inode walked."""
    bench.cold(1)
    began = time.monotonic()
    for path in chosen:
        os.lstat(path)
    lookup = (time.monotonic() - began) / len(chosen)
    bench.cold(1)
    before = bench.memory(bench.mounts[0])
    walk = find_ls(root, inodes=inodes, scratch=bench.base) / inodes
    return {"lookup": lookup * 1e6, "walk": walk * 1e6, "memory": (bench.memory(bench.mounts[0]) - before) / inodes}


def rows_of(costs: dict[int, dict[str, list[float]]]) -> list[Figure]:
    """A row for each cost of each step but the first. No worse than a logarithm: ten times the first 10,000 may cost a quarter more."""
    first, *steps = costs
    rows = []
    for what in costs[first]:
        unit = "B" if what == "memory" else "us"
        base = statistics.median(costs[first][what])
        for step in steps:
            values = costs[step][what]
            goal = f"≤ {math.log(step) / math.log(first):.2f}"
            detail = f"{statistics.median(values):.1f} {unit}, at {first:,} {base:.1f}"
            sides = {"values": values, "against": costs[first][what]}
            rows.append(Figure(f"{what} for each of {step:,} / of {first:,}", goal, [value / base for value in values], detail, sides=sides))
    return rows
