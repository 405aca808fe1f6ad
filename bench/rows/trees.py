"""Trees that are unpacked, walked and summed up, by one node and by the other."""
from collections import defaultdict
from pathlib import Path

from rig import Bench, Figure, compared, drop_caches, percent, seconds, timed, times_local, traffic
from tree import du, find_ls, make_tree

TOKEN_BYTES = 200
# The least that `token_memory=` takes, for each of the nodes that share it.
BUDGET_LEAST = 1 << 20
# As many directories, each with a token, as a tenth of their memory is the least budget.
DIRECTORIES = 10 * BUDGET_LEAST // TOKEN_BYTES + 1_000


def untar(bench: Bench) -> list[Figure]:
    one: dict[str, list[float]] = {}
    two: dict[str, list[float]] = {}
    local: list[float] = []
    cost: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
    files = bench.count(16_000)
    for number in range(bench.runs):
        sides = [(1, one), (2, two)]
        # By turns, for whoever comes second finds the disk as the first has left it.
        for count, values in sides if number % 2 == 0 else reversed(sides):
            bench.fresh(count)
            with bench.counted(cost[count]):
                figures = bench.bench("tar", bench.mounts[0], "--local", bench.local, "--files", files, runs=1)
            for name in ("unpack", "du again"):
                values.setdefault(name, []).extend(figures[name]["values"])
            if count == 2:
                local += times_local(figures["unpack"])
    return [
        compared("untar, second node mounted / single node", "≤ 1.03", two["unpack"], one["unpack"], beside_one({1: one["unpack"], 2: two["unpack"]}, cost)),
        compared("second du of what was unpacked, two nodes / one", "≤ 1.05", two["du again"], one["du again"]),
        Figure("untar / ext4", "≤ 3", local),
    ]


def du_again(bench: Bench) -> list[Figure]:
    """A second du on the node that made the tree, where the other has looked at it in between, and where there is no other."""
    rows = []
    for usual in (10_000, 100_000, 1_000_000):
        inodes = bench.count(usual)
        took: dict[int, list[float]] = {1: [], 2: []}
        cost: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
        for _ in range(bench.runs):
            for count in took:
                bench.new_volume()
                bench.nodes(count)
                make_tree(bench.mounts[0] / "tree", inodes)
                took[count].append(second_du(bench, cost[count]))
        rows.append(compared(f"second du of {inodes:,}, two nodes / one", "≤ 1.05", took[2], took[1], beside_one(took, cost)))
        rows += du_with_little_memory(bench, inodes)
    return rows


def second_du(bench: Bench, cost: list[tuple[int, int]]) -> float:
    """Both look, and the first again: how long that took."""
    for place in bench.up:
        du(place / "tree")
    with bench.counted(cost):
        return du(bench.mounts[0] / "tree")


def beside_one(took: dict[int, list[float]], cost: dict[int, list[tuple[int, int]]]) -> str:
    return f"{seconds(took[2], took[1], 'one')}; {traffic(cost[2])}, one {traffic(cost[1])}"


def du_with_little_memory(bench: Bench, inodes: int) -> list[Figure]:
    """The same with a tenth of the memory for tokens. A directory has one, so this tree has as many as it takes for a tenth to be allowed."""
    directories = min(inodes, DIRECTORIES)
    if directories * TOKEN_BYTES < 1.5 * BUDGET_LEAST:
        bench.note(f"du: the tokens of {inodes:,} inodes fit into the least memory that may be set, so nothing is measured with less")
        return []
    whole: dict[int, list[float]] = {1: [], 2: []}
    tight: dict[int, list[float]] = {1: [], 2: []}
    cost: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
    share = 1.0
    for _ in range(bench.runs):
        for count in (1, 2):
            bench.new_volume()
            bench.nodes(count)
            make_tree(bench.mounts[0] / "tree", inodes - directories, directories)
            whole[count].append(second_du(bench, []))
            needed = bench.counters(bench.mounts[0])["tokens_held"] * TOKEN_BYTES
            budget = max(needed // 10, BUDGET_LEAST)
            share = budget / needed
            bench.fresh(count, f"token_memory={budget * count}")
            tight[count].append(second_du(bench, cost[count]))
    name = f"second du of {inodes:,}, {percent(share)} of the token memory it needs"
    if share > 0.15:
        bench.note(f"du: of {inodes:,} inodes a tenth of the token memory is less than the least that may be set; with {percent(share)} instead")
    return [
        compared(f"{name}, two nodes / one", "≤ 1.05", tight[2], tight[1], beside_one(tight, cost)),
        compared(f"{name} / all of it, two nodes", "no jump", tight[2], whole[2], seconds(tight[2], whole[2], "all of it")),
        compared(f"{name} / all of it, one node", "", tight[1], whole[1], seconds(tight[1], whole[1], "all of it")),
    ]


def walk(bench: Bench) -> list[Figure]:
    """`find -ls` of one tree, cold, warm and by turns; the same tree on ext4 in the same run."""
    bench.fresh(2)
    files = bench.count(393_604)
    inodes = make_tree(bench.mounts[0] / "tree", files)
    make_tree(bench.local / "tree", files)
    took: dict[str, list[float]] = defaultdict(list)
    cost: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run in range(bench.runs):
        for step, value in walks_of_a_run(bench, inodes, "o-r" if run % 2 == 0 else "o+r", cost).items():
            took[step].append(value)

    def row(name: str, goal: str, of: str, to: str) -> Figure:
        whose = "ext4" if to.startswith("ext4") else to
        detail = f"{seconds(took[of], took[to], whose)}; {traffic(cost[of])}"
        return compared(f"{name} / {to}", goal, took[of], took[to], detail)

    return [
        row("walk, warm", "≤ 1.1", "warm", "ext4 warm"),
        row("walk, cold: caches dropped and nodes fresh", "≤ 1.3", "own cold", "ext4 cold"),
        row("the same, only the kernel's caches dropped", "", "only the kernel's caches dropped", "ext4 cold"),
        row("first walk from the other node", "≤ 1.0", "first from the other", "own cold"),
        row("the same", "", "first from the other", "only the kernel's caches dropped"),
        row("second walk of the first node", "", "second", "warm"),
        row("walk again, back on the first node", "≤ 1.05", "back", "warm"),
        row("walk again, back on the other node", "≤ 1.05", "there", "warm there"),
        row("from the other node after a chmod of all", "≤ 1.0", "after chmod", "own cold"),
        row("the same", "", "after chmod", "only the kernel's caches dropped"),
        row("back on the first node after that", "", "back after chmod", "warm"),
        row("both at once", "≤ 1.3", "both at once", "warm"),
        row("chmod -R of all", "", "chmod", "ext4 chmod"),
    ]


def walks_of_a_run(bench: Bench, inodes: int, mode: str, cost: dict[str, list[tuple[int, int]]]) -> dict[str, float]:
    """Seconds of each step, in the order they are done in, and what it cost in requests and messages."""
    here, there, local = (place / "tree" for place in (*bench.mounts, bench.local))
    took: dict[str, float] = {}

    def step(name: str, *roots: Path) -> None:
        with bench.counted(cost[name]):
            took[name] = find_ls(*roots, inodes=inodes, scratch=bench.base)

    bench.cold(2)
    step("own cold", here)
    bench.have_memory()
    step("first from the other", there)
    # The second walk still asks once for each directory, the third for nothing: that one is warm.
    step("second", here)
    step("warm", here)
    step("second there", there)
    step("warm there", there)
    step("back", here)
    step("there", there)
    with bench.counted(cost["chmod"]):
        took["chmod"] = timed("chmod", "-R", mode, here)
    bench.have_memory()
    step("after chmod", there)
    step("back after chmod", here)
    step("both at once", here, there)
    drop_caches()
    bench.have_memory()
    step("only the kernel's caches dropped", here)
    drop_caches()
    bench.have_memory()
    step("ext4 cold", local)
    step("ext4 warm", local)
    took["ext4 chmod"] = timed("chmod", "-R", mode, local)
    return took
