"""GlusterFS: one brick, no replicas, two native mounts."""
from systems.base import System, needed, packages_version
from systems.host import ADDRESS, Host


class GlusterFS(System):
    name = "glusterfs"
    packages = ("glusterfs-server", "glusterfs-client")
    settings = ("one brick, distribute, two native FUSE mounts, default options", "brick on the same file system as everybody's data")

    def version(self) -> str:
        return packages_version("glusterfs-server")

    def start(self, host: Host) -> None:
        state, brick, socket = host.place / "glusterd", host.place / "brick", host.place / "glusterd.socket"
        for directory in (state, brick):
            directory.mkdir()
        volfile = host.place / "glusterd.vol"
        options = {
            "working-directory": state,
            "run-directory": host.place / "run",
            "glusterd-sockfile": socket,
            "transport-type": "socket",
            "transport.socket.listen-port": 24007,
            "ping-timeout": 0,
            "event-threads": 1,
        }
        lines = ["volume management", "type mgmt/glusterd", *(f"option {name} {value}" for name, value in options.items()), "end-volume"]
        volfile.write_text("\n".join(lines) + "\n")
        host.start("glusterd", needed("glusterd"), "-N", "-f", volfile, "-l", host.logs / "gluster-server.log", "-p", host.place / "glusterd.pid")
        cli = [needed("gluster"), "--mode=script", f"--glusterd-sock={socket}", f"--log-file={host.logs}/gluster-cli.log"]
        host.wait("glusterd", lambda: bool(host.run(*cli, "pool", "list", seconds=10)))
        host.run(*cli, "volume", "create", "bench", f"{ADDRESS}:{brick}", "force")
        host.run(*cli, "volume", "start", "bench")
        for number, mountpoint in enumerate(host.mounts, 1):
            log = host.logs / f"client{number}.log"
            host.start(f"mount{number}", needed("glusterfs"), "-N", f"--volfile-server={ADDRESS}", "--volfile-id=bench", "-l", log, mountpoint)
        host.wait_for_mounts()
