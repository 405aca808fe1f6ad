"""Names in a second, by one node and by two, and the messages they cost."""
import contextlib
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

from rig import FULL, Bench, Figure, Ticks, against_local, busy_shares, compared, percent, said, spread

ENABLE_URING = Path("/sys/module/fuse/parameters/enable_uring")
FRESH_RUNS = 10


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
    """Two nodes at once. Two that have both processors busy cannot do more, so how busy they were stands beside."""
    bench.fresh(2)
    files = bench.count(40_000)
    cores = os.cpu_count() or 1
    rows = []
    for kind in ("mknod", "create"):
        sides: dict[str, list[object]] = {
            "alone": [bench.mounts[0]],
            "own": [*bench.mounts, "--processes", 2, "--own"],
            "shared": [*bench.mounts, "--processes", 2],
        }
        rates: dict[str, list[float]] = {side: [] for side in sides}
        busy: dict[str, list[float]] = {side: [] for side in sides}
        others: list[float] = []
        for _ in range(bench.runs):
            for side, args in sides.items():
                begun = Ticks.now()
                figure = bench.bench("create", *args, "--kinds", kind, "--files", files, runs=1)[kind]
                rates[side] += figure["values"]
                of_all, of_others = busy_shares(figure, cores, Ticks.now().stolen_since(begun))
                busy[side].append(of_all)
                others.append(of_others)
        cpu = {side: statistics.median(shares) for side, shares in busy.items()}
        foreign = statistics.median(others)
        middle = {side: f"{statistics.median(values):,.0f}" for side, values in rates.items()}
        detail = f"{middle['own']}, alone {middle['alone']} a second; CPU {percent(cpu['own'])}, alone {percent(cpu['alone'])}"
        detail += f", {percent(foreign)} of it others'" if foreign > 1 - FULL else ""
        # What others use does not excuse anything.
        excuse = "CPU is full" if cpu["own"] - foreign >= FULL else ""
        name = f"{kind}, two nodes in own directories / one alone"
        rows.append(compared(name, "≥ 1.5, or CPU full", rates["own"], rates["alone"], detail, excuse=excuse))
        detail = f"{middle['shared']} a second; CPU {percent(cpu['shared'])}"
        rows.append(compared(f"{kind}, two nodes in one directory / own", "≥ 0.3", rates["shared"], rates["own"], detail))
    return rows


def messages(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    files = bench.count(150_000)
    figure = bench.bench("create", bench.mounts[1], "--kinds", "mknod", "--files", files, runs=1)["mknod"]
    each = sum(count for name, count in figure["counters_each"].items() if name.startswith("message "))
    return [Figure("messages for 100 mknods, not the master", "< 1", [each * 100], f"{files:,} names")]


def append(bench: Bench) -> list[Figure]:
    """By turns one node appends and the other looks, the master in either place."""
    count = bench.count(2_000)
    rows = []
    for option, goal in (("", "≤ 1.01"), ("lazysize", "≤ 0.01")):
        for who, writer, reader in (("the master", 0, 1), ("another node", 1, 0)):
            bench.fresh(2, option)
            each, kinds = messages_of_stats(bench, bench.mounts[writer], bench.mounts[reader], count)
            named = f"{who} appends" + (f", with {option}" if option else "")
            rows.append(Figure(f"messages to stat a file that {named}", goal, [each], kinds))
    return rows


def messages_of_stats(bench: Bench, writer: Path, reader: Path, count: int) -> tuple[float, str]:
    """Messages that the reader sends for each stat(2), and of which kinds they and the writer's are."""
    name = "appended"
    with open(writer / name, "wb", buffering=0) as file:
        file.write(b"first")
        os.stat(reader / name)
        before = [bench.counters(place) for place in (reader, writer)]
        for _ in range(count):
            file.write(b"more")
            os.stat(reader / name)
        after = [bench.counters(place) for place in (reader, writer)]
    os.unlink(writer / name)
    asked, answered = (sent(*pair) for pair in zip(before, after))
    return sum(asked.values()) / count, f"asked: {kinds_of(asked, count)}; answered: {kinds_of(answered, count)}"


def sent(before: dict, after: dict) -> dict[str, int]:
    """Messages by kind that were sent between two looks at the counters."""
    was, now = (counters["by_label"]["messages_sent_total"] for counters in (before, after))
    return {kind: count - was.get(kind, 0) for kind, count in now.items() if count > was.get(kind, 0)}


def kinds_of(messages_by_kind: dict[str, int], count: int) -> str:
    """The kinds of which there were more than one for a hundred calls, the most first."""
    often = sorted((-number, kind) for kind, number in messages_by_kind.items() if number > count / 100)
    return ", ".join(f"{kind} {-number / count:.2g}" for number, kind in often) or "nothing"


def spread_of_creates(bench: Bench) -> list[Figure]:
    """Each run on a new file system, a new volume and new nodes, and ext4 beside it on the same."""
    files = bench.count(20_000)
    runs = FRESH_RUNS if bench.scale >= 0.1 else 3
    if runs < FRESH_RUNS:
        bench.note(f"spread: {runs} fresh runs instead of {FRESH_RUNS}, at so small a scale")
    rows = []
    ours: dict[str, list[float]] = {"mknod": [], "create": []}
    local: dict[str, list[float]] = {"mknod": [], "create": []}
    for _ in range(runs):
        with bench.another() as new:
            new.nodes(2)
            args = [new.mounts[0], "--local", new.local, "--files", files, "--kinds", ",".join(ours)]
            figures = new.bench("create", *args, runs=1)
        for kind in ours:
            ours[kind] += figures[kind]["values"]
            local[kind] += figures[kind]["local"]["values"]
    for kind in ours:
        off, beside = spread(ours[kind]) * 100, spread(local[kind]) * 100
        excuse = "as ext4" if off <= beside else ""
        detail = f"ext4 ±{beside:.0f} %; {min(ours[kind]):,.0f} to {max(ours[kind]):,.0f} a second"
        name = f"spread of the rate of {kind} over {runs} fresh runs"
        sides = {"values": ours[kind], "against": local[kind]}
        rows.append(Figure(name, "≤ 10 %, or ext4's", [off], detail, unit=" %", excuse=excuse, sides=sides))
    return rows


def uring(bench: Bench) -> list[Figure]:
    """Two clients of one node, the kernel's requests by turns through io_uring and through /dev/fuse."""
    if not ENABLE_URING.exists():
        bench.note("uring: this kernel does not offer it")
        return []
    files = bench.count(40_000)
    rates: dict[str, list[float]] = {"N": [], "Y": []}
    for _ in range(bench.runs):
        for switch, values in rates.items():
            bench.nodes(0)
            with enable_uring(switch):
                bench.nodes(1)
            transport = json.loads(said(bench.binary, "status", bench.volume, "--json"))["nodes"][0]["transport"]
            if (transport == "dev_fuse") != (switch == "N"):
                raise RuntimeError(f"enable_uring was {switch}, but requests come through {transport}")
            args = [bench.mounts[0], "--processes", 2, "--own", "--kinds", "mknod", "--files", files]
            values += bench.bench("create", *args, runs=1)["mknod"]["values"]
    detail = f"{statistics.median(rates['Y']):,.0f} a second, /dev/fuse {statistics.median(rates['N']):,.0f}"
    return [compared("mknod by two clients, io_uring / /dev/fuse", "≥ 1.3", rates["Y"], rates["N"], detail)]


@contextlib.contextmanager
def enable_uring(switch: str) -> Iterator[None]:
    """Sets the kernel's parameter while something is mounted, and not longer: what is mounted keeps what it found."""
    before = ENABLE_URING.read_text(encoding="ascii").strip()
    ENABLE_URING.write_text(switch, encoding="ascii")
    try:
        yield
    finally:
        ENABLE_URING.write_text(before, encoding="ascii")
