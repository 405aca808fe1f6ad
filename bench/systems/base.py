"""What every system is to the runner."""
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from systems.host import Failed, Host


@dataclass(frozen=True)
class Tools:
    """Where programs are that do not come with the distribution."""

    holdfast: Path
    environment: Path

    def program(self, name: str) -> Path:
        return self.environment / "bin" / name


class System(ABC):
    """A file system that can be mounted twice. `start` mounts it at both of `host.mounts`, empty."""

    name: str
    packages: tuple[str, ...] = ()
    python_packages: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    # Whether two machines could mount it; what cannot is shown as the ceiling and is nobody's rival.
    shared = True
    # Whether what fsync(2) said is written is on the disk, set up so.
    durable = True
    network = True

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def start(self, host: Host) -> None: ...


def package_version(package: str) -> str:
    asked = subprocess.run(["dpkg-query", "-W", "-f", "${Status} ${Version}", package], capture_output=True, text=True, check=False)
    return asked.stdout.split()[-1] if "install ok installed" in asked.stdout else ""


def packages_version(*packages: str) -> str:
    return ", ".join(f"{package} {package_version(package)} (Debian)" for package in packages)


def said_by(program: Path | str, *arguments: str) -> str:
    """The first line that a program says of itself."""
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else ""


def needed(program: str) -> str:
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin")
    if path is None:
        raise Failed(f"{program} is not installed")
    return path
