# The file system exerciser in its Rust form: two files on each mount at once, every kind of operation.
cargo install --quiet --locked --root "$WORK/tools" fsx@0.3.0
cat >"$WORK/fsx.toml" <<TOML
[weights]
close_open = 1
invalidate = 1
fsync = 1
fdatasync = 1
mapread = 10
mapwrite = 10
truncate = 5
read = 10
write = 10
punch_hole = 5
posix_fallocate = 3
posix_fadvise = 1
copy_file_range = 5
sendfile = 2
TOML
seed=$(date +%s)
for place in "$A" "$B"; do
    for file in 1 2; do
        "$WORK/tools/bin/fsx" -q -f "$WORK/fsx.toml" -N 25000 -S $((seed + file)) -P "$WORK" "$place/fsx-$(basename "$place")-$file" &
        pids="${pids:-} $!"
    done
done
for pid in $pids; do
    wait "$pid"
done
echo "100,000 operations from seed $seed"
