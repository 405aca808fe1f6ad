"""Holdfast: a volume in a directory, mounted twice."""
from systems.base import System, said_by
from systems.host import Host


class Holdfast(System):
    name = "holdfast"
    network = False
    settings = ("volume in a directory, two mounts, default options",)

    def version(self) -> str:
        return said_by(self.tools.holdfast, "--version")

    def start(self, host: Host) -> None:
        volume = host.place / "volume"
        host.run(self.tools.holdfast, "format", volume)
        for number, mountpoint in enumerate(host.mounts, 1):
            host.start(f"mount{number}", self.tools.holdfast, "mount", "-f", volume, mountpoint)
            host.wait(f"mount of {mountpoint.name}", lambda place=mountpoint: host.is_mounted(place))  # type: ignore[misc]
        host.wait_for_mounts()
