"""The local file system itself, one directory used twice: what the others stand on, and what none of them can beat for long."""
import platform
import subprocess
from pathlib import Path

from systems.base import System
from systems.host import Host


class Local(System):
    name = "ext4"
    shared = False
    network = False
    settings = ("one directory used as both mounts, on the file system that holds everybody's data: the ceiling, not a cluster",)

    def version(self) -> str:
        return f"Linux {platform.release()}"

    def start(self, host: Host) -> None:
        for mountpoint in host.mounts:
            mountpoint.rmdir()
        data = host.place / "data"
        data.mkdir()
        host.mounts = [data, data]


def type_of(directory: Path) -> str:
    return subprocess.run(["findmnt", "-no", "FSTYPE", "--target", str(directory)], capture_output=True, text=True, check=True).stdout.strip()
