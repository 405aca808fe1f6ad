# packages: redis-server
# A log of commands, each synced, on one mount; killed while it is written, and read on the other.
mkdir "$A/data"
socket="$WORK/socket"
start() {
    redis-server --port 0 --unixsocket "$socket" --dir "$1/data" --appendonly yes --appendfsync always --save '5 1' >"$WORK/log.txt" 2>&1 &
    server=$!
    for _ in $(seq 1 100); do
        test "$(redis-cli -s "$socket" ping 2>/dev/null)" = PONG && return
        sleep 0.1
    done
    tail "$WORK/log.txt" >&2
    exit 1
}
start "$A"
redis-benchmark -s "$socket" -q -n 5000 -c 8 -t incr,set,lpush >"$WORK/benchmark.txt" 2>&1
redis-cli -s "$socket" bgrewriteaof >/dev/null
(for n in $(seq 1 200000); do echo "incr counted"; done | timeout 20 redis-cli -s "$socket" >"$WORK/told.txt" 2>/dev/null || true) &
load=$!
sleep 2
kill -9 "$server"
wait "$load" "$server" || true
told="$(grep -E '^[0-9]+$' "$WORK/told.txt" | tail -n 1)"
start "$B"
counted="$(redis-cli -s "$socket" get counted)"
redis-cli -s "$socket" shutdown || true
wait "$server" || true
redis-check-aof "$A"/data/appendonlydir/*.manifest >"$WORK/checked.txt"
test "$counted" -ge "$told"
echo "$counted counted, $told told"
