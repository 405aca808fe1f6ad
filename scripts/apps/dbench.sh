# packages: dbench
# Four clients on each mount.
for place in "$A" "$B"; do
    mkdir "$place/clients-$(basename "$place")"
    dbench -D "$place/clients-$(basename "$place")" -t 30 4 >"$WORK/dbench-$(basename "$place").txt" 2>&1 &
    pids="${pids:-} $!"
done
for pid in $pids; do
    wait "$pid"
done
! grep -il 'failed\|error' "$WORK"/dbench-*.txt
grep -h Throughput "$WORK"/dbench-*.txt | cut -d' ' -f1-3 | paste -sd' '
