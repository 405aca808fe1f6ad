#!/bin/sh
# Every test of the repository, in at most 45 minutes on two cores. Tests with mounts need root and /dev/fuse.
set -eu
cd "$(dirname "$0")"
. ./scripts/machine.sh

need_fuse
need_disk 12 .
need_packages fuse3 gcc libc6-dev make git sqlite3 python3 util-linux mount coreutils e2fsprogs xfsprogs btrfs-progs iproute2 procps redis-server librsvg2-bin man-db
want_juicefs
need_cargo
cargo fmt --all --check
cargo build --quiet --workspace --all-targets
fuzz_log="$(mktemp)"
# A minute for each decoder, from a fresh seed, on what the other tests leave of the processors.
HOLDFAST_FUZZ_SECONDS=60 HOLDFAST_SEED="$(date +%s)" \
    setsid nice -n 19 cargo test --quiet --workspace --test targets -- --nocapture >"$fuzz_log" 2>&1 &
fuzz=$!
trap 'kill -- "-$fuzz" 2>/dev/null || true; rm -f "$fuzz_log"' EXIT
cargo test --quiet --workspace
cargo test --quiet -p holdfast-sim --features planted --test planted
cargo run --quiet -p xtask -- layers
/usr/bin/python3 bench/selftest.py
cargo run --quiet -p xtask -- tidy
echo "waiting for the fuzzer"
wait "$fuzz" || { cat "$fuzz_log"; exit 1; }
cat "$fuzz_log"
# It tells who is slow: with nothing beside.
cargo test --quiet -p holdfast --test doctor -- --ignored --skip a_stopped_daemon_of_a_network_file_system
