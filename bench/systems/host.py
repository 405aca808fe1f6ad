"""What a system under measurement is started in: processes, mounts, a network of its own; and how all of it goes away again.

Only what was started here is ended. The runner is the reaper of its descendants (prctl(2), PR_SET_CHILD_SUBREAPER): a daemon that leaves
its parent becomes the runner's child, so that its descendants are exactly what it started, whatever they are called.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
# An address that is nobody's (RFC 5737), on the loopback of the private network: some servers refuse 127.0.0.1.
ADDRESS = "192.0.2.1"


class Failed(Exception):
    """A system that does not start, or a step that fails; the text says what."""


def become_reaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Process(NamedTuple):
    parent: int
    state: str
    session: int


def processes() -> dict[int, Process]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # It has ended.
        found[int(entry)] = Process(int(fields[1]), fields[0], int(fields[3]))
    return found


def descendants() -> list[int]:
    """Those of this process that still run; those that have ended are reaped unless somebody waits for them."""
    running = processes()
    children: dict[int, list[int]] = {}
    for pid, process in running.items():
        children.setdefault(process.parent, []).append(pid)
    found, queue = [], [os.getpid()]
    while queue:
        for pid in children.get(queue.pop(), []):
            queue.append(pid)
            if running[pid].state not in "ZX":
                found.append(pid)
    return found


def in_session(leader: int) -> list[int]:
    """The processes of the session that `leader` began, itself included."""
    return [pid for pid, process in processes().items() if process.session == leader and process.state not in "ZX"]


def reap(waited_for: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Collects what has ended. `waited_for` is left to its own `wait`."""
    for process in waited_for:
        process.poll()
    for pid, found in processes().items():
        if found.parent == os.getpid() and found.state in "ZX":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def end(pids: Callable[[], list[int]], seconds: float = 15) -> list[int]:
    """Ends what `pids` names, first by SIGTERM, then by SIGKILL. Returns those that neither ended."""
    for sign, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10.0)):
        limit = time.monotonic() + patience
        told: set[int] = set()
        while left := pids():
            for pid in left:
                if pid not in told:
                    told.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, sign)
            if time.monotonic() > limit:
                break
            time.sleep(0.05)
        else:
            return []
    return pids()


def mount_entries() -> list[tuple[str, str]]:
    """Device number and place of each mount, without asking the file systems."""
    entries = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        entries.append((fields[2], fields[4].replace("\\040", " ")))
    return entries


class Host:
    """One system's surroundings, below `place`."""

    def __init__(self, place: Path, nice: int) -> None:
        self.place = place
        self.mounts = [place / "mnt1", place / "mnt2"]
        self.logs = place / "logs"
        self.private = False
        self._nice = nice
        self._network: subprocess.Popen[bytes] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        for directory in [*self.mounts, self.logs]:
            directory.mkdir(parents=True)

    def private_network(self) -> None:
        """A network with nothing in it but loopback: every port is free, and nobody outside is reached."""
        self._network = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], start_new_session=True)
        own = os.readlink("/proc/self/ns/net")
        limit = time.monotonic() + 10
        while os.readlink(f"/proc/{self._network.pid}/ns/net") == own:
            if time.monotonic() > limit or self._network.poll() is not None:
                raise Failed("no private network: unshare(1) --net needs root")
            time.sleep(0.01)
        self.private = True
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")

    def _command(self, arguments: Sequence[str | Path]) -> list[str]:
        network = ["nsenter", f"--net=/proc/{self._network.pid}/ns/net", "--"] if self._network else []
        niceness = ["nice", "-n", str(self._nice)] if self._nice else []
        return [*network, *niceness, *map(str, arguments)]

    def run(self, *arguments: str | Path, seconds: float = 60) -> str:
        """Runs a command to its end, in the private network if there is one, and returns what it printed."""
        try:
            done = subprocess.run(self._command(arguments), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{arguments[0]}: not done after {seconds:.0f} s") from late
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise Failed(f"{' '.join(map(str, arguments[:4]))}: exit code {done.returncode}: {said[-1] if said else ''}")
        return done.stdout

    def start(self, name: str, *arguments: str | Path) -> None:
        """Starts a daemon; what it says goes to a log of that name."""
        with open(self.logs / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                self._command(arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.place, start_new_session=True
            )
        self._processes.append(process)

    def wait(self, what: str, ready: Callable[[], bool], seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while True:
            try:
                if ready():
                    return
            except Failed:
                pass
            if time.monotonic() > limit:
                raise Failed(f"{what}: not after {seconds:.0f} s; {self.last_words()}")
            time.sleep(0.1)

    def is_mounted(self, mountpoint: Path) -> bool:
        return any(place == str(mountpoint) for _, place in mount_entries())

    def wait_for_mounts(self, seconds: float = 60) -> None:
        for mountpoint in self.mounts:
            self.wait(f"mount of {mountpoint.name}", lambda place=mountpoint: self.is_mounted(place), seconds)  # type: ignore[misc]
        try:
            for mountpoint in self.mounts:
                self.run("stat", "-f", mountpoint, seconds=30)
            (self.mounts[0] / "seen").mkdir()
            self.wait("what the first mount made is seen by the second", lambda: (self.mounts[1] / "seen").is_dir(), seconds)
            (self.mounts[0] / "seen").rmdir()
        except OSError as error:
            raise Failed(f"the mounts do not work: {error}; {self.last_words()}") from error

    def level_priorities(self) -> list[str]:
        """Takes back what daemons raised their priority by, since on a busy machine that would decide. Returns who they are."""
        usual, raised = os.getpriority(os.PRIO_PROCESS, 0) + self._nice, []
        for pid in descendants():
            with contextlib.suppress(OSError):
                threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
                above = [thread for thread in threads if os.getpriority(os.PRIO_PROCESS, thread) < usual]
                for thread in above:
                    os.setpriority(os.PRIO_PROCESS, thread, usual)
                if above:
                    raised.append(Path("/proc", str(pid), "comm").read_text().strip())
        return raised

    def last_words(self) -> str:
        words = []
        for log in sorted(self.logs.glob("*.log")):
            lines = log.read_text(errors="replace").strip().splitlines()
            if lines:
                words.append(f"{log.stem}: {lines[-1][:300]}")
        return "; ".join(words)

    def _unmount(self) -> None:
        for _, place in reversed(mount_entries()):
            if not Path(place).is_relative_to(self.place):
                continue
            for command in (["umount", place], ["umount", "-l", place]):
                child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
                try:
                    if child.wait(20) == 0:
                        break
                except subprocess.TimeoutExpired:
                    child.kill()
                    abort(place)

    def stop(self) -> None:
        """Unmounts, ends every process that was started, and removes what was written."""
        # Known while they are mounted alone.
        connections = [connection for _, place in mount_entries() if Path(place).is_relative_to(self.place) for connection in connections_of(place)]
        self._unmount()
        stuck = end(descendants)
        if stuck:
            for connection in connections:
                if connection.exists():
                    connection.write_text("1")
            stuck = end(descendants, 1)
        self._unmount()
        reap([*self._processes, *([self._network] if self._network else [])])
        if stuck:
            print(f"processes that do not end: {' '.join(map(str, stuck))}", file=sys.stderr)
        if any(Path(place).is_relative_to(self.place) for _, place in mount_entries()):
            print(f"still mounted, so left as it is: {self.place}", file=sys.stderr)
            return
        shutil.rmtree(self.place, ignore_errors=True)


def connections_of(place: str) -> list[Path]:
    """What aborts the connection of a FUSE mount with its daemon."""
    devices = [device for device, mounted in mount_entries() if mounted == place and device.startswith("0:")]
    paths = [Path("/sys/fs/fuse/connections", device.split(":")[1], "abort") for device in devices]
    return [path for path in paths if path.exists()]


def abort(place: str) -> None:
    """Breaks the connection of a FUSE mount with its daemon, so that whoever waits for it gets an error."""
    for connection in connections_of(place):
        connection.write_text("1")
