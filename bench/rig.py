"""What the figures are measured on: a volume on a file system of its own, with one node or two; and what became of them."""
import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

IMAGE_GIB = 24
# A node that was unmounted still ends; its volume is on the disk that is unmounted after it.
END_SECONDS = 60
CALL_SECONDS = 120
FULL = 0.95
# Several times what the largest tree takes in the kernel and in two nodes, at scale 1: the kernel does not begin with what was freed last.
TOUCHED_BYTES = 6 << 30


class Figure:
    """One row: what is measured, its goal, and the values of the runs: ratios, or numbers of `unit`.

    `sides` are the values that the ratios were made of, by whose they are. `excuse` says why a goal that is missed is none.
    """

    def __init__(
        self,
        name: str,
        goal: str,
        values: list[float],
        detail: str = "",
        *,
        unit: str = "",
        excuse: str = "",
        sides: dict[str, list[float]] | None = None,
    ) -> None:
        self.name, self.goal, self.values, self.detail = name, goal, values, detail
        self.unit, self.excuse, self.sides = unit, excuse, sides or {}

    def median(self) -> float:
        return statistics.median(self.values)

    def spread(self) -> float:
        return spread(self.values)

    def met(self) -> str:
        """`yes` or `no`, `excuse` where that counts instead, nothing where there is no goal in numbers."""
        found = re.match(r"\(?([≤≥<]) ?([0-9.]+)", self.goal)
        if found is None:
            return ""
        limit = float(found[2])
        is_met = {"≤": self.median() <= limit, "≥": self.median() >= limit, "<": self.median() < limit}[found[1]]
        return "yes" if is_met else self.excuse or "no"

    def line(self) -> str:
        off = f" ±{self.spread() * 100:.0f} %" if len(self.values) > 1 else ""
        return f"| {self.name} | {self.goal} | {short(self.median())}{self.unit}{off} | {self.detail} | {self.met()} |"


class Bench:
    """A volume on a fresh file system, with one node or two, and a directory beside it for comparison."""

    def __init__(self, binary: str, base: Path, runs: int, scale: float, options: str = "", growth_to: int = 1_000_000) -> None:
        self.binary, self.base, self.runs, self.scale, self.options = binary, base, runs, scale, options
        self.growth_to = growth_to
        self.disk, self.mounts = base / "disk", [base / "a", base / "b"]
        self.volume, self.local = self.disk / "volume", self.disk / "local"
        self.up: list[Path] = []
        self.notes: list[str] = []

    def __enter__(self) -> "Bench":
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes(0)
        for place in self.mounts:
            self.end(place)
        if self.disk.is_mount() and not until(lambda: called("umount", self.disk), END_SECONDS):
            called("umount", "-l", self.disk)

    def make(self) -> None:
        image = self.base / "image"
        for place in [self.disk, *self.mounts]:
            place.mkdir()
        run("truncate", "-s", f"{IMAGE_GIB}G", image)
        run("mkfs.ext4", "-q", "-F", image)
        # Without the thread of ext4 that would write empty tables of inodes meanwhile.
        run("mount", "-o", "loop,noinit_itable", image, self.disk)
        self.local.mkdir()
        run(self.binary, "format", self.volume)

    @contextlib.contextmanager
    def another(self) -> Iterator["Bench"]:
        """A second one of the same kind, without any history, while this one stays."""
        with tempfile.TemporaryDirectory(dir=self.base) as base:
            with Bench(self.binary, Path(base), self.runs, self.scale, self.options, self.growth_to) as bench:
                yield bench

    def nodes(self, count: int, extra: str = "") -> None:
        """Mounts or unmounts until so many nodes are up; those that stay keep what they have. `extra` are mount options."""
        while len(self.up) > count:
            self.end(self.up.pop())
        while len(self.up) < count:
            place = self.mounts[len(self.up)]
            options = ",".join(filter(None, [self.options, extra]))
            run(self.binary, "mount", *(["-o", options] if options else []), self.volume, place)
            self.up.append(place)

    def end(self, place: Path) -> None:
        """Unmounts `place` and waits until its node has ended; one that does not is killed."""
        if place.is_mount() and not called("umount", place):
            called("umount", "-l", place)
        if not until(lambda: self.daemon(place) is None, END_SECONDS):
            self.kill(place)

    def kill(self, place: Path) -> None:
        """Ends a node without warning, and removes the mount it leaves."""
        pid = self.daemon(place)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: self.daemon(place) is None, END_SECONDS)
        called("umount", "-l", place)
        if place in self.up:
            self.up.remove(place)

    def fresh(self, count: int, extra: str = "") -> None:
        """Has so many nodes that know nothing."""
        self.nodes(0)
        self.nodes(count, extra)

    def cold(self, count: int) -> None:
        """Has so many nodes that know nothing, and nothing in the kernel's caches either."""
        self.nodes(0)
        drop_caches()
        self.have_memory()
        self.nodes(count)

    def have_memory(self) -> None:
        """Has the machine's memory be there, for whatever fills caches next.

        The host of a virtual machine takes back what nobody uses, and whoever comes to use it waits until it is there again: a walk of 400,000 inodes
        for half a second, or not at all where another has just freed as much. So a part of what is free is written to, and freed.
        """
        length = max(min(available_memory() // 2, int(TOUCHED_BYTES * min(self.scale, 1))), mmap.PAGESIZE)
        with mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1

    def new_volume(self) -> None:
        """Begins with an empty volume; no node is up."""
        self.nodes(0)
        shutil.rmtree(self.volume)
        run(self.binary, "format", self.volume)

    def daemon(self, place: Path) -> int | None:
        """The process that serves the mount at `place`."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if is_node(path.read_bytes(), self.volume, place):
                    return int(path.parent.name)
        return None

    def memory(self, place: Path) -> int:
        """Bytes that the node at `place` has resident."""
        text = Path(f"/proc/{self.daemon(place)}/status").read_text(encoding="ascii")
        return resident(text)

    def counters(self, place: Path) -> dict:
        return json.loads(said(self.binary, "stat", place, "--json"))

    def traffic(self) -> tuple[int, int]:
        """Requests of the kernel and messages sent, of all nodes that are up."""
        counters = [self.counters(place) for place in self.up]
        return sum(each["fuse_requests_total"] for each in counters), sum(each["messages_sent_total"] for each in counters)

    @contextlib.contextmanager
    def counted(self, into: list[tuple[int, int]]) -> Iterator[None]:
        """Adds what was asked and sent meanwhile: where times differ by chance, these tell."""
        requests, messages = self.traffic()
        yield
        requests_now, messages_now = self.traffic()
        into.append((requests_now - requests, messages_now - messages))

    def bench(self, what: str, *args: object, runs: int | None = None) -> dict:
        """The figures of `holdfast bench`, by name."""
        command = [self.binary, "bench", what, *map(str, args), "--runs", str(runs or self.runs), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}

    def count(self, usual: int, least: int = 100) -> int:
        return max(int(usual * self.scale), least)

    def note(self, text: str) -> None:
        """Says once, below the table, what is not measured, or not as it should be."""
        if text not in self.notes:
            self.notes.append(text)


class Ticks:
    """What the processors did since the machine started, in ticks of /proc/stat."""

    def __init__(self, text: str) -> None:
        user, nice, system, idle, wait, irq, softirq, steal = map(int, text.split()[1:9])
        self.stolen = steal
        self.busy = user + nice + system + irq + softirq + steal
        self.all = self.busy + idle + wait

    @classmethod
    def now(cls) -> "Ticks":
        return cls(Path("/proc/stat").read_text(encoding="ascii"))

    def stolen_since(self, earlier: "Ticks") -> float:
        return (self.stolen - earlier.stolen) / max(self.all - earlier.all, 1)


def busy_shares(figure: dict, cores: int, stolen: float) -> tuple[float, float]:
    """How much of the processors a step of `holdfast bench` had in use, by its own count and what was `stolen` meanwhile; and others' part of that."""
    cpu_us, scale = figure["cpu_us"], figure["median"] / 1e6 / cores
    of_all = sum(us for us in cpu_us.values() if us is not None) * scale + stolen
    return min(of_all, 1.0), min((cpu_us["others"] or 0.0) * scale, 1.0)


def is_node(command_line: bytes, volume: Path, place: Path) -> bool:
    """Is it a process that serves `volume` at `place`? Options may stand between."""
    words = command_line.rstrip(b"\0").split(b"\0")
    return words[1:3] == [b"mount", b"--report-ready"] and words[-3:] == [b"--", bytes(volume), bytes(place)]


def resident(status: str) -> int:
    """Bytes of `VmRSS` in a /proc/PID/status."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError("the node has ended")
    return int(found[1]) * 1024


def against_local(figure: dict) -> list[float]:
    """How much of the local file system's figure each run had: above 1 is better."""
    pairs = zip(figure["values"], figure["local"]["values"])
    return [of / local if figure["unit"] == "per second" else local / of for of, local in pairs]


def times_local(figure: dict) -> list[float]:
    """How many times the local file system's time each run took."""
    return [1 / ratio for ratio in against_local(figure)]


def ratios(values: Iterable[float], others: Iterable[float]) -> list[float]:
    return [value / other for value, other in zip(values, others)]


def spread(values: list[float]) -> float:
    """Half of the range, as a share of the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


def percentile(values: list[float], share: float) -> float:
    """The least value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def compared(name: str, goal: str, values: list[float], others: list[float], detail: str = "", **more: str) -> Figure:
    """A row of ratios that keeps what they were made of."""
    return Figure(name, goal, ratios(values, others), detail, sides={"values": values, "against": others}, **more)


def seconds(values: list[float], others: list[float] | None = None, whose: str = "ext4") -> str:
    """What a row says of times: the median, and that of the other side."""
    beside = f", {whose} {short(statistics.median(others))}" if others else ""
    return f"{short(statistics.median(values))} s{beside}"


def traffic(counts: list[tuple[int, int]]) -> str:
    """What a row says of requests and messages: of each the median of the runs."""
    requests, messages = (statistics.median(column) for column in zip(*counts))
    return f"{requests:,.0f} requests, {messages:,.0f} messages"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def drop_caches() -> None:
    """Empties the kernel's caches of pages, names and inodes, of the whole machine."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")


def available_memory() -> int:
    """Bytes that could be had."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def timed(*command: object) -> float:
    begun = time.monotonic()
    run(*command)
    return time.monotonic() - begun


def run(*command: object) -> None:
    said(*command)


def said(*command: object) -> str:
    """Runs a command; what it printed. One that fails is an error with its own words."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def called(*command: object) -> bool:
    """Runs a command that may fail, or hang: did it end well?"""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run([str(word) for word in command], capture_output=True, timeout=CALL_SECONDS, check=False).returncode == 0
    return False


def until(is_so: Callable[[], bool], limit_seconds: float) -> bool:
    """Looks again and again until something is so, but not longer than `limit_seconds`."""
    deadline = time.monotonic() + limit_seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
