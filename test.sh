#!/bin/sh
# Every test of the repository, in at most 25 minutes on two cores. Tests with mounts need root and /dev/fuse.
set -eu
cd "$(dirname "$0")"
. ./scripts/machine.sh

need_fuse
need_disk 12 .
need_packages fuse3 gcc libc6-dev make git sqlite3 python3 util-linux mount coreutils e2fsprogs xfsprogs btrfs-progs
need_cargo
cargo fmt --all --check
cargo build --quiet --workspace --all-targets
cargo test --quiet --workspace
cargo test --quiet -p holdfast-sim --features planted --test planted
cargo run --quiet -p xtask -- layers
cargo run --quiet -p xtask -- tidy
