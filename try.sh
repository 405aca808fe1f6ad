#!/bin/sh
# Holdfast in one command: checks the machine, installs what is missing, builds, and does the main job.
#
# A volume in a directory is mounted twice. A real source tree is unpacked through one mount, walked and
# compared file by file on the other; the master is killed, the other node carries on. At the end stands a
# table: each figure beside the local file system's in the same run. Nothing is left behind but the build.
set -eu
cd "$(dirname "$0")"
. ./scripts/machine.sh

need_fuse
need_disk 6 "${HOLDFAST_TRY_DIR:-/var/tmp}"
need_memory 2
need_packages fuse3 tar findutils coreutils gcc libc6-dev golang-1.19-src
need_cargo
echo "building (some minutes the first time)"
cargo build --release --quiet -p holdfast -p xtask
exec "$(target_dir)/release/xtask" try --holdfast "$(target_dir)/release/holdfast" "$@"
