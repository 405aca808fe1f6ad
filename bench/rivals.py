#!/usr/bin/python3
"""Measures Holdfast and other cluster file systems in the same run, on the same harness, each mounted twice on this machine.

Each system is installed (packages stay installed), and in each run started anew on loopback, measured and removed, one after the other.
Needs root. See README.md beside this file.
"""
import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

sys.dont_write_bytecode = True

import report
from report import Record
from systems import DEFAULT, SYSTEMS
from systems.base import System, Tools, package_version
from systems.host import Failed, Host, become_reaper, descendants, end, in_session, reap
from systems.local import type_of
from whole import write_whole

TREE = Path("/usr/share/go-1.19")
TREE_PACKAGE = "golang-1.19-src"
FROM_HARNESS = ("tar", "create", "dd", "lat", "find", "coher", "ping")
BENCH = ("bench-tar", "bench-create", "bench-create-own", "bench-create-shared", "bench-walk", "bench-latency", "bench-pingpong", "bench-coherence")
# What a harness is not asked for.
BESIDE_HARNESS = ("bench-latency", "bench-pingpong", "bench-create-own", "bench-create-shared")


Result = TypeVar("Result")


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP."""


class Signals:
    """Turns signals into an exception; while something must not be broken off, at its end."""

    def __init__(self) -> None:
        self.held = False
        self.came = False
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, self._arrived)

    def _arrived(self, _sign: int, _frame: object) -> None:
        self.came = True
        if self.held:
            print("one moment", file=sys.stderr)
        else:
            raise Interrupted

    def hold(self, step: Callable[[], Result]) -> Result:
        self.held = True
        try:
            result = step()
        finally:
            self.held = False
        if self.came:
            raise Interrupted
        return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdfast", type=Path, default=Path(__file__).parent.parent / "target/release/holdfast", help="the binary [target/release]")
    parser.add_argument("--load", type=Path, metavar="FILE", help="the harness: FILE OUT.json MNT1 MNT2 --only WORKLOAD and the sizes below")
    parser.add_argument("--only", metavar="A,B", default=",".join(system.name for system in DEFAULT), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--workloads", metavar="A,B", help=f"of the harness ({', '.join(FROM_HARNESS)}) and of {', '.join(BENCH)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=10000, help="files of the tree that is walked [%(default)s]")
    parser.add_argument("--creates", type=int, default=5000, help="names made in one directory [%(default)s]")
    parser.add_argument("--dd", type=int, default=1024, metavar="MIB", help="size of the file that is streamed [%(default)s]")
    parser.add_argument("--tar", type=Path, metavar="FILE", help=f"archive to unpack [made of {TREE_PACKAGE}]")
    parser.add_argument("--limit", type=float, default=150, metavar="SECONDS", help="of each workload; some systems stall [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="where everybody's data are [%(default)s]")
    parser.add_argument("--out", type=Path, default=Path("rivals-out"), help="directory of the results, new or empty [%(default)s]")
    parser.add_argument("--tools", type=Path, default=Path(os.environ.get("HOLDFAST_TOOLS_DIR", "/var/tmp/holdfast-tools")), help="Python environment for packages of PyPI")
    parser.add_argument("--no-install", action="store_true", help="install nothing; a system that is not there is left out")
    parser.add_argument("--nice", type=int, default=0, help="niceness of everything that is started [%(default)s]")
    parser.add_argument("--report", type=Path, metavar="DIR", help="measure nothing, write the report of DIR anew")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in SYSTEMS]
    if unknown:
        parser.error(f"no such system: {', '.join(unknown)}")
    if options.workloads is None:
        options.workloads = ",".join(FROM_HARNESS + BESIDE_HARNESS if options.load else BENCH)
    options.workloads = options.workloads.split(",")
    asks_harness = [name for name in options.workloads if not name.startswith("bench-")]
    if asks_harness and options.load is None:
        parser.error(f"{', '.join(asks_harness)}: workloads of a harness, name it with --load")
    unknown = [name for name in options.workloads if name.startswith("bench-") and name not in BENCH]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}")
    return options


# ---- Installing ----


def install_packages(packages: list[str]) -> None:
    """Debian's packages, without letting them start their services."""
    absent = [package for package in packages if not package_version(package)]
    if not absent:
        return
    print(f"installing {' '.join(absent)}", flush=True)
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, start_new_session=True)
            if done.returncode:
                raise Failed(f"{' '.join(command[:2])}: {done.stderr.strip()[-300:]}")
    finally:
        if ours:
            policy.unlink()


def install_python_packages(environment: Path, packages: list[str]) -> None:
    if not packages:
        return
    if not (environment / "bin/pip").exists():
        install_packages(["python3-venv"])
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(environment)], check=True, stdout=subprocess.DEVNULL)
    pip = [str(environment / "bin/pip"), "--disable-pip-version-check"]
    there = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True).stdout.lower().split()
    absent = [package for package in packages if package not in there]
    if absent:
        print(f"installing {' '.join(absent)} of PyPI into {environment}", flush=True)
        done = subprocess.run([*pip, "install", "--quiet", *absent], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"pip install: {done.stderr.strip()[-300:]}")


def installed(options: argparse.Namespace, tools: Tools) -> list[System]:
    """The systems that were asked for and are there."""
    chosen = []
    for name in options.only.split(","):
        system = SYSTEMS[name](tools)
        try:
            if not options.no_install:
                install_packages(list(system.packages))
                install_python_packages(tools.environment, list(system.python_packages))
            absent = [package for package in system.packages if not package_version(package)]
            absent += [package for package in system.python_packages if not tools.environment.exists()]
            if absent:
                raise Failed(f"not installed: {' '.join(absent)}")
            version = system.version()
        except (Failed, OSError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        print(f"{name}: {version}")
        for setting in system.settings:
            print(f"  {setting}")
        chosen.append(system)
    return chosen


# ---- Measuring ----


class Runner:
    def __init__(self, options: argparse.Namespace, place: Path, archive: Path | None) -> None:
        self.options = options
        self.place = place
        self.archive = archive
        self.raw: Path = options.out / "raw"

    def command(self, workload: str, mounts: list[Path], out: Path) -> list[str]:
        options = self.options
        first, both = [str(mounts[0])], [str(mount) for mount in mounts]
        if not workload.startswith("bench-"):
            sizes = ["--files", str(options.files), "--creates", str(options.creates), "--dd", str(options.dd)]
            archive = ["--tar", str(self.archive)] if self.archive else []
            return [sys.executable, str(options.load), str(out), *both, "--only", workload, *sizes, *archive]
        names, files = ["--files", str(options.creates), "--kinds", "mknod,create"], ["--files", str(options.files)]
        archive = ["--archive", str(self.archive)] if self.archive else files
        asked = {
            "bench-tar": ["tar", *both, *archive],
            "bench-create": ["create", *first, "--files", str(options.creates)],
            "bench-create-own": ["create", *both, "--processes", "2", "--own", *names],
            "bench-create-shared": ["create", *both, "--processes", "2", *names],
            "bench-walk": ["walk", *both, *files],
            "bench-latency": ["latency", *first, "--count", "500"],
            "bench-pingpong": ["pingpong", *both, "--count", "500"],
            "bench-coherence": ["coherence", *both],
        }[workload]
        runs = [] if workload == "bench-coherence" else ["--runs", "1"]
        return [str(options.holdfast), "bench", *asked, *runs, "--json"]

    def measure(self, record: Record, host: Host) -> None:
        """Runs one workload; it and all that it started are ended at the limit."""
        out, said, errors = host.place / "out.json", host.place / "stdout", host.place / "stderr"
        out.unlink(missing_ok=True)
        command = self.command(record.workload, host.mounts, out)
        begun = time.monotonic()
        with open(said, "wb") as stdout, open(errors, "wb") as stderr:
            niceness = ["nice", "-n", str(self.options.nice)] if self.options.nice else []
            process = subprocess.Popen([*niceness, *command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True)
            try:
                code = process.wait(self.options.limit)
            except subprocess.TimeoutExpired:
                record.problem = f"not done after {self.options.limit:g} s"
                end(lambda: in_session(process.pid), 2)
                return
            finally:
                record.seconds = round(time.monotonic() - begun, 1)
        ours = record.workload.startswith("bench-")
        text = (said if ours else out).read_text() if ours or out.exists() else ""
        words = errors.read_text(errors="replace").strip().splitlines()
        # 1 is the answer of `bench coherence` that something old was seen.
        if code not in ((0, 1) if record.workload == "bench-coherence" else (0,)) or not text:
            record.problem = f"exit code {code}: {words[-1][:300] if words else ''}"
            return
        record.result = json.loads(text) if ours else json.loads(text).get(record.workload)
        if record.result is None:
            record.problem = "the harness has no result of this name"
        elif isinstance(record.result, dict) and "failed" in record.result:
            record.problem = f"failed: {record.result['failed']}"

    def started(self, run: int, system: System, host: Host) -> str:
        """Starts the system; says what is wrong if it does not."""
        subprocess.run(["sync"], check=True)
        try:
            if system.network:
                host.private_network()
            system.start(host)
            raised = host.level_priorities()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            print(f"run {run}, {system.name}: did not start: {error}", flush=True)
            return f"did not start: {error}"
        if raised:
            print(f"run {run}, {system.name}: set back to the usual priority: {', '.join(raised)}", flush=True)
        return ""

    def some(self, run: int, system: System, workloads: list[str], signals: Signals) -> list[str]:
        """Workloads on one empty volume until one is cut off, since what that has left under way would slow the next. Returns what is left."""
        left = list(workloads)
        host = Host(Path(tempfile.mkdtemp(prefix=f"{system.name}-", dir=self.place)), self.options.nice)
        try:
            trouble = self.started(run, system, host)
            whole = True
            while left and whole:
                record = Record(run, system.name, left.pop(0), load=round(os.getloadavg()[0], 2), problem=trouble)
                if not trouble:
                    self.measure(record, host)
                    whole = not record.problem.startswith("not done")
                    print(f"run {run}, {system.name}, {record.workload}: {record.seconds} s {record.problem}", flush=True)
                write_whole(self.raw / f"{run}-{system.name}-{record.workload}.json", json.dumps(dataclasses.asdict(record), indent=1))
                if record.problem:
                    shutil.copytree(host.logs, self.options.out / "logs" / f"{run}-{system.name}-{'start' if trouble else record.workload}", dirs_exist_ok=True)
        finally:
            signals.hold(host.stop)
        return left

    def one(self, run: int, system: System, signals: Signals) -> None:
        """One run of one system, from an empty volume to nothing left."""
        left: list[str] = self.options.workloads
        while left:
            left = self.some(run, system, left, signals)


def facts(options: argparse.Namespace, systems: list[System], archive: Path | None) -> dict[str, Any]:
    memory = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")).split()[1])
    measured = {
        "Begun": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Machine": f"{os.cpu_count()} processors, {memory / 1048576:.0f} GiB of memory, Linux {platform.release()}, data on {type_of(options.dir)}",
        "Sizes": f"{options.files} files, {options.creates} names, a stream of {options.dd} MiB"
        + (f", an archive of {archive.stat().st_size >> 20} MiB" if archive else ""),
        "Runs": f"{options.runs}, the systems by turns, one at a time; a limit of {options.limit:g} s for each workload",
    }
    described = {system.name: {"version": system.version(), "settings": list(system.settings), "shared": system.shared, "durable": system.durable} for system in systems}
    return {"format": 1, "measured": measured, "systems": described}


def write_report(out: Path) -> None:
    known = json.loads((out / "systems.json").read_text())
    records = [Record(**json.loads(path.read_text())) for path in (out / "raw").glob("*.json")]
    order = {name: place for place, name in enumerate(known["workloads"])}
    records.sort(key=lambda record: (order.get(record.workload, len(order)), record.run))
    loads = sorted(record.load for record in records)
    if loads:
        known["measured"]["Load"] = f"{loads[0]} to {loads[-1]} as the workloads began: of the systems' own daemons and of whatever else ran"
    write_whole(out / "report.json", report.document(records, known))
    text = report.markdown(records, known)
    write_whole(out / "report.md", text)
    print(f"\n{text}\n{out}/report.md, {out}/report.json")


def make_archive(place: Path, may_install: bool) -> Path:
    if may_install:
        install_packages([TREE_PACKAGE])
    if not TREE.is_dir():
        raise Failed(f"no archive to unpack: install {TREE_PACKAGE}, or name one with --tar")
    archive = place / "tree.tar"
    subprocess.run(["tar", "-C", str(TREE.parent), "-cf", str(archive), TREE.name], check=True)
    return archive


def measure_all(options: argparse.Namespace, place: Path, signals: Signals) -> bool:
    """All runs of all systems. False if it was broken off."""
    systems = signals.hold(lambda: installed(options, Tools(options.holdfast.resolve(), options.tools)))
    archive = options.tar
    if archive is None and {"tar", "bench-tar"} & set(options.workloads):
        archive = signals.hold(lambda: make_archive(place, not options.no_install))
    for directory in ("raw", "logs"):
        (options.out / directory).mkdir(parents=True, exist_ok=True)
    known = {**facts(options, systems, archive), "workloads": options.workloads}
    write_whole(options.out / "systems.json", json.dumps(known, indent=1))
    runner = Runner(options, place, archive)
    try:
        for run in range(1, options.runs + 1):
            for system in systems:
                runner.one(run, system, signals)
    except Interrupted:
        print("broken off", file=sys.stderr)
        return False
    return True


def main() -> int:
    options = arguments()
    if options.report:
        write_report(options.report)
        return 0
    if os.geteuid() != 0:
        sys.exit("rivals: needs root: to mount, to make networks and to drop caches")
    if not os.access(options.holdfast, os.X_OK):
        sys.exit(f"rivals: no Holdfast at {options.holdfast}: build it (cargo build --release) or name it with --holdfast")
    if options.out.exists() and any(options.out.iterdir()):
        sys.exit(f"rivals: {options.out} is not empty")
    signals = Signals()
    become_reaper()
    place = Path(tempfile.mkdtemp(prefix="holdfast-rivals-", dir=options.dir))
    whole = False
    try:
        whole = measure_all(options, place, signals)
    except Interrupted:
        print("broken off", file=sys.stderr)
    except Failed as error:
        sys.exit(f"rivals: {error}")
    finally:
        signals.held = True
        end(descendants)
        reap([])
        (place / "tree.tar").unlink(missing_ok=True)
        try:
            place.rmdir()
        except OSError:
            print(f"not removed: {place}", file=sys.stderr)
    if (options.out / "systems.json").exists():
        write_report(options.out)
    return 0 if whole else 130


if __name__ == "__main__":
    sys.exit(main())
