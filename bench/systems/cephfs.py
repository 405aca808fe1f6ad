"""CephFS: a monitor, a manager, one OSD, one metadata server, two ceph-fuse mounts."""
import uuid

from systems.base import System, needed, packages_version
from systems.host import Host

CONFIGURATION = """\
[global]
fsid = {fsid}
mon initial members = a
mon host = 127.0.0.1
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
run dir = {place}/run
log file = {place}/logs/ceph-$name.log
admin socket = {place}/run/$cluster-$name-$pid.asok
pid file = {place}/run/$name.pid
keyring = {place}/keyring
mon data = {place}/mon
mgr data = {place}/mgr
mds data = {place}/mds
osd data = {place}/osd
osd objectstore = bluestore
bluestore block create = true
bluestore block size = 12884901888
osd memory target = 2147483648
"""


class CephFS(System):
    name = "cephfs"
    packages = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph-common", "ceph-base")
    settings = (
        "1 monitor, 1 manager, 1 OSD (bluestore in a file of 12 GiB, osd memory target 2 GiB), 1 metadata server, pools of size 1",
        "cephx off, two ceph-fuse mounts with default options",
    )

    def version(self) -> str:
        return packages_version("ceph-mds", "ceph-fuse")

    def start(self, host: Host) -> None:
        configuration = host.place / "ceph.conf"
        for name in ("run", "mon", "mgr", "mds", "osd"):
            (host.place / name).mkdir()
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        configuration.write_text(CONFIGURATION.format(fsid=fsid, place=host.place))
        (host.place / "keyring").write_text("")
        here = ("-c", configuration)

        def ceph(*arguments: str) -> str:
            return host.run(needed("ceph"), *here, "--connect-timeout", "20", *arguments, seconds=60)

        host.run(needed("ceph-mon"), *here, "--mkfs", "-i", "a", "--fsid", fsid)
        host.start("mon", needed("ceph-mon"), *here, "-i", "a", "-f")
        host.wait("the monitor", lambda: "quorum" in ceph("mon", "stat"))
        host.start("mgr", needed("ceph-mgr"), *here, "-i", "x", "-f")
        number = ceph("osd", "new", osd).strip()
        host.run(needed("ceph-osd"), *here, "-i", number, "--mkfs", "--osd-uuid", osd, "--fsid", fsid)
        host.start("osd", needed("ceph-osd"), *here, "-i", number, "-f")
        host.wait("the OSD", lambda: "1 up" in ceph("osd", "stat"))
        for pool in ("metadata", "data"):
            ceph("osd", "pool", "create", pool, "8")
        ceph("fs", "new", "bench", "metadata", "data")
        host.start("mds", needed("ceph-mds"), *here, "-i", "a", "-f")
        host.wait("the metadata server", lambda: "up:active" in ceph("mds", "stat"))
        for which, mountpoint in enumerate(host.mounts, 1):
            host.start(f"mount{which}", needed("ceph-fuse"), *here, "-f", mountpoint)
        host.wait_for_mounts()
