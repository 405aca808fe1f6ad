# packages: libacl1-dev acl
# The POSIX suite of FreeBSD in its Rust form, on both mounts at once, beside the same on the local file system.
cargo install --quiet --locked --root "$WORK/tools" pjdfstest@0.2.2
cat >"$WORK/pjdfstest.toml" <<TOML
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
chmod 755 "$WORK"
for place in "$A" "$B" "$WORK"; do
    mkdir -p "$place/pjd"
    chmod 777 "$place/pjd"
    "$WORK/tools/bin/pjdfstest" -c "$WORK/pjdfstest.toml" -p "$place/pjd" >"$WORK/$(basename "$place").txt" 2>&1 &
done
wait
for place in "$A" "$B" "$WORK"; do
    tail -n 1 "$WORK/$(basename "$place").txt" | grep -q '^Summary: 0 failed' || { grep -A3 FAILED "$WORK/$(basename "$place").txt"; exit 1; }
done
tail -n 1 "$WORK/$(basename "$A").txt"
