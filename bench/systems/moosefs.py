"""MooseFS: a master with all metadata in memory, a chunk server, two mounts."""
from pathlib import Path

from systems.base import System, needed, packages_version
from systems.host import ADDRESS, Host


class MooseFS(System):
    name = "moosefs"
    durable = False
    packages = ("moosefs-master", "moosefs-chunkserver", "moosefs-client")
    settings = (
        "one chunk server, goal 1, default mount options",
        "its daemons would run at nice -19; here at the same priority as everybody else",
        "by default the master writes its log in the background and chunk servers do not fsync: what fsync promised is in memory",
    )

    def version(self) -> str:
        return packages_version("moosefs-master")

    def start(self, host: Host) -> None:
        master, chunks, disk = host.place / "master", host.place / "chunks", host.place / "disk"
        for directory in (master, chunks, disk):
            directory.mkdir()
        (master / "metadata.mfs").write_bytes(b"MFSM NEW")
        common = ["WORKING_USER = root", "WORKING_GROUP = root", "LOCK_MEMORY = 0"]
        _write(master / "exports.cfg", ["* / rw,alldirs,admin,maproot=0:0"])
        _write(master / "mfs.cfg", [*common, f"DATA_PATH = {master}", f"EXPORTS_FILENAME = {master}/exports.cfg"])
        _write(chunks / "hdd.cfg", [str(disk)])
        _write(chunks / "mfs.cfg", [*common, f"DATA_PATH = {chunks}", f"HDD_CONF_FILENAME = {chunks}/hdd.cfg", f"MASTER_HOST = {ADDRESS}"])
        host.start("master", needed("mfsmaster"), "-f", "-c", master / "mfs.cfg", "start")
        host.wait("the master", lambda: "9421" in host.run("ss", "-ltn"))
        host.start("chunkserver", needed("mfschunkserver"), "-f", "-c", chunks / "mfs.cfg", "start")
        # A volume has room as soon as the master knows the chunk server.
        host.wait("the chunk server", lambda: "9422" in host.run("ss", "-ltn"))
        for number, mountpoint in enumerate(host.mounts, 1):
            host.start(f"mount{number}", needed("mfsmount"), "-f", "-H", ADDRESS, mountpoint)
        host.wait_for_mounts()
        host.wait("room in the volume", lambda: int(host.run("stat", "-f", "-c", "%a", host.mounts[0])) > 0)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
