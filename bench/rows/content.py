"""What files hold: streams, small reads and writes, and single calls."""
import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from rig import Bench, Figure, called, compared, percentile, run, said

BLOCK = 4096
MIB = 1 << 20


def latency(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    count = bench.count(1_000)
    calls = ("write+fsync", "flock", "read")
    figures: dict[str, list[dict]] = {call: [] for call in calls}
    for _ in range(bench.runs):
        args = [bench.mounts[0], "--local", bench.local, "--calls", ",".join(calls), "--count", count]
        for call, figure in bench.bench("latency", *args, runs=1).items():
            figures[call].append(figure)

    def row(call: str, which: str, goal: str) -> Figure:
        ours, local = ([figure[side][which] * 1e6 for figure in figures[call]] for side in ("delays", "local_delays"))
        detail = f"{statistics.median(ours):.1f} us, ext4 {statistics.median(local):.1f}"
        return compared(f"{call} {which} / ext4", goal, ours, local, detail)

    locks = [figure["delays"]["p50"] * 1e6 for figure in figures["flock"]]
    return [
        row("write+fsync", "p50", "≤ 1.5"),
        row("write+fsync", "p99", "≤ 2"),
        row("flock", "p50", ""),
        Figure("flock and unlock p50", "≤ 25 us", locks, unit=" us"),
        row("read", "p50", ""),
    ]


def peak(bench: Bench) -> list[Figure]:
    """Small direct reads on one node while the other writes flat out, and the same on ext4."""
    bench.fresh(2)
    length = max(int(64 * bench.scale), 4) * MIB
    lasts = max(10 * min(bench.scale, 1), 2)
    sides = {"Holdfast": bench.mounts, "ext4": [bench.local, bench.local]}
    for written, _ in sides.values():
        fill(written / "read", length)
    os.sync()
    delays: dict[str, list[list[float]]] = {side: [] for side in sides}
    for _ in range(bench.runs):
        for side, (written, read) in sides.items():
            with writing_flat_out(written / "written", 4 * length):
                delays[side].append(direct_reads(read / "read", length, lasts))
    # What no file system can do better: nothing is read, and the processor is the writer's as well.
    each = percentile([delay for run in delays["Holdfast"] for delay in run], 0.5)
    alone = "a program that reads nothing and computes as long"
    for _ in range(bench.runs):
        with writing_flat_out(sides["ext4"][0] / "written", 4 * length):
            delays.setdefault(alone, []).append(computations(each, lasts))
    rows = []
    for side, runs in delays.items():
        peaks = [percentile(run, 0.999) / percentile(run, 0.5) for run in runs]
        whole = [delay * 1e6 for run in runs for delay in run]
        detail = f"p50 {percentile(whole, 0.5):,.0f} us, p99.9 {percentile(whole, 0.999):,.0f}, max {max(whole):,.0f}, of {len(whole):,}"
        name = f"{side}, beside a writer on ext4" if side == alone else f"direct 4 KiB read beside a writer, {side}"
        rows.append(Figure(f"{name}: p99.9 / p50", "≤ 10" if side == "Holdfast" else "", peaks, detail))
    return rows


def fill(path: Path, length: int) -> None:
    """A file that no layer can make smaller, on the disk."""
    with open(path, "wb") as file:
        for _ in range(length // MIB):
            file.write(random.randbytes(MIB))
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def writing_flat_out(path: Path, length: int) -> Iterator[None]:
    """A process that writes a file, synced at its end, again and again."""
    loop = 'while :; do dd if=/dev/zero of="$1" bs=1M count="$2" conv=fsync 2>/dev/null || exit; done'
    writer = subprocess.Popen(["sh", "-c", loop, "sh", str(path), str(length // MIB)], start_new_session=True)
    try:
        time.sleep(0.5)
        yield
        if writer.poll() is not None:
            raise RuntimeError(f"dd of {path}: exit code {writer.returncode}")
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()


def direct_reads(path: Path, length: int, lasts: float) -> list[float]:
    """Seconds of each read past the kernel's cache, at places all over the file, for so long."""
    found = []
    page = mmap.mmap(-1, BLOCK)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        end = time.monotonic() + lasts
        while (begun := time.perf_counter()) and time.monotonic() < end:
            os.preadv(file, [page], random.randrange(length // BLOCK) * BLOCK)
            found.append(time.perf_counter() - begun)
    finally:
        os.close(file)
    return found


def computations(each: float, lasts: float) -> list[float]:
    """Seconds of each of many computations that take so many by themselves."""
    rounds = 1
    while counted(rounds) < each:
        rounds *= 2
    rounds = max(int(rounds * each / min(counted(rounds) for _ in range(100))), 1)
    found = []
    end = time.monotonic() + lasts
    while time.monotonic() < end:
        found.append(counted(rounds))
    return found


def counted(rounds: int) -> float:
    begun = time.perf_counter()
    for _ in range(rounds):
        pass
    return time.perf_counter() - begun


def stream(bench: Bench) -> list[Figure]:
    bench.fresh(2)
    size = f"{bench.count(1_024)}MiB"
    figures = bench.bench("ladder", *bench.mounts, "--local", bench.local, "--size", size)
    rows = []
    for what, goal in (("write", "≥ 0.9"), ("read", "≥ 0.9")):
        local = figures[f"{what}, local"]["values"]
        for rung in ("first mount", "second mount"):
            values = figures[f"{what}, {rung}"]["values"]
            rows.append(compared(f"{what}, {rung} / ext4", goal, values, local, rates(values, local, "ext4")))
    return rows


def device(bench: Bench) -> list[Figure]:
    """Beside a second device of the same kind, which may be written over; one that nobody has written would read too fast."""
    bench.fresh(2)
    mib = bench.count(1_024)
    values: dict[str, list[float]] = {}
    with scratch_device(bench.base / "scratch", 2 * mib * MIB) as scratch:
        for _ in range(bench.runs):
            run("blkdiscard", scratch)
            args = [*bench.mounts, "--local", bench.local, "--destroy-data", scratch, "--size", f"{mib}MiB"]
            for name, figure in bench.bench("ladder", *args, runs=1).items():
                values.setdefault(name, []).extend(figure["values"])
    rows = []
    for what in ("write", "read"):
        raw = values[f"{what}, raw direct"]
        for rung, goal in (("first mount", "≥ 0.75"), ("second mount", "≥ 0.75"), ("local", "")):
            ours, called_ext4 = values[f"{what}, {rung}"], "ext4" if rung == "local" else rung
            rows.append(compared(f"{what}, {called_ext4} / device", goal, ours, raw, rates(ours, raw, "device")))
    return rows


def rates(values: list[float], others: list[float], whose: str) -> str:
    return f"{statistics.median(values):,.0f} MB/s, {whose} {statistics.median(others):,.0f}"


@contextlib.contextmanager
def scratch_device(image: Path, length: int) -> Iterator[str]:
    """A loop device on a new file, which is gone afterwards."""
    run("truncate", "-s", length, image)
    path = said("losetup", "--find", "--show", image).strip()
    try:
        yield path
    finally:
        called("losetup", "--detach", path)
        image.unlink()


def fio(bench: Bench) -> list[Figure]:
    """Random 4 KiB by fio(1), one after the other: read cold, read past the page cache, and written with fsync(2) after each."""
    if shutil.which("fio") is None:
        bench.note("fio is not installed: random reads and writes are not measured (package fio)")
        return []
    mib = max(int(256 * bench.scale), 8)
    bench.fresh(2)
    places = {"ours": bench.mounts[0] / "fio", "local": bench.local / "fio"}
    for path in places.values():
        fill(path, mib * MIB)
    jobs = {
        "read, nothing cached": ("randread", 0, bench.count(20_000)),
        "direct read": ("randread", 1, bench.count(20_000)),
        "write with fsync": ("randwrite", 0, bench.count(2_000)),
    }
    rows = []
    for name, (pattern, direct, count) in jobs.items():
        found: dict[str, list[float]] = {side: [] for side in places}
        for seed in range(bench.runs):
            for side, path in places.items():
                # New nodes for both sides, so that both begin with the same caches.
                bench.cold(2) if pattern == "randread" else os.sync()
                said_by_fio = said("fio", *fio_job(path, pattern, direct, count, mib, seed))
                found[side].append(fio_rate(said_by_fio))
        detail = f"{statistics.median(found['ours']):,.0f} a second, ext4 {statistics.median(found['local']):,.0f}"
        rows.append(compared(f"random 4 KiB {name} / ext4 (fio)", "≥ 0.5", found["ours"], found["local"], detail))
    return rows


def fio_job(path: Path, pattern: str, direct: int, count: int, mib: int, seed: int) -> list[str]:
    given = {
        "name": "random",
        "filename": path,
        "size": f"{mib}m",
        "bs": BLOCK,
        "rw": pattern,
        "ioengine": "psync",
        "direct": direct,
        "fsync": int(pattern == "randwrite"),
        "number_ios": count,
        "runtime": 60,
        "randseed": seed + 1,
        "allow_file_create": 0,
        "output-format": "json",
    }
    return [f"--{key}={value}" for key, value in given.items()]


def fio_rate(text: str) -> float:
    """Reads or writes a second of the one job that fio(1) tells of; words may stand before its document."""
    job = json.loads(text[text.index("{") :])["jobs"][0]
    if job["error"] != 0:
        raise RuntimeError(f"fio: error {job['error']}")
    rate = max(job[side]["iops"] for side in ("read", "write"))
    if rate <= 0:
        raise RuntimeError("fio did nothing")
    return rate
