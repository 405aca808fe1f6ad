"""The systems that can be measured, by name."""
from systems.base import System
from systems.cephfs import CephFS
from systems.glusterfs import GlusterFS
from systems.holdfast import Holdfast
from systems.juicefs import JuiceFS, JuiceFSStrict, JuiceFSWriteback
from systems.local import Local
from systems.moosefs import MooseFS
from systems.seaweedfs import SeaweedFS, SeaweedFSLocks

DEFAULT: tuple[type[System], ...] = (Local, Holdfast, JuiceFS, MooseFS, CephFS, GlusterFS, SeaweedFS)
VARIANTS: tuple[type[System], ...] = (JuiceFSStrict, JuiceFSWriteback, SeaweedFSLocks)
SYSTEMS: dict[str, type[System]] = {system.name: system for system in (*DEFAULT, *VARIANTS)}
