# packages: sqlite3
# Two processes on two mounts add to one database, in both journal modes that work without shared memory.
for mode in delete truncate; do
    sqlite3 "$A/$mode.db" "pragma journal_mode=$mode; create table t(who text, n integer);" >/dev/null
    for place in "$A" "$B"; do
        (for n in $(seq 1 150); do sqlite3 -cmd '.timeout 60000' "$place/$mode.db" "insert into t values('$place', $n);"; done) &
        pids="${pids:-} $!"
    done
    for pid in $pids; do wait "$pid"; done
    pids=
    test "$(sqlite3 "$B/$mode.db" 'select count(*) from t; pragma integrity_check;' | paste -sd' ')" = "300 ok"
done
echo "600 transactions"
