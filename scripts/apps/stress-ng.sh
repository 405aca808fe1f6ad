# packages: stress-ng
# Its file system class, one stressor after the other, each on both mounts; without those that a kernel or FUSE may lack.
cd "$A"
for place in "$A" "$B"; do
    stress-ng --class filesystem --exclude binderfs,fiemap,verity --sequential 2 --timeout 3s --verify --temp-path "$place" >"$WORK/stress-$(basename "$place").txt" 2>&1 &
    pids="${pids:-} $!"
done
for pid in $pids; do
    wait "$pid" || { grep -h 'fail' "$WORK"/stress-*.txt; exit 1; }
done
grep -h 'completed' "$WORK/stress-$(basename "$A").txt" | sed 's/.*info: *//'
