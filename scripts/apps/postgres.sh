# packages: postgresql
# A database on one mount under load, killed, recovered on the other mount, checked.
bin="$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)"
chmod 755 "$WORK"
mkdir "$A/db"
chown postgres:postgres "$A/db"
as() { su postgres -s /bin/sh -c "cd /; PGHOST=/tmp PGPORT=54329 $*"; }
options="-o '-p 54329 -k /tmp -c listen_addresses='"
as "$bin/initdb --no-locale -D $A/db/data" >"$WORK/initdb.txt"
as "$bin/pg_ctl -w -D $A/db/data -l $A/db/log $options start" >/dev/null
as "$bin/pgbench -i -q -s 5 postgres" >"$WORK/pgbench.txt" 2>&1
as "$bin/pgbench -n -c 4 -T 15 postgres" >"$WORK/load.txt" 2>&1 &
load=$!
sleep 10
kill -9 "$(head -n 1 "$A/db/data/postmaster.pid")"
wait "$load" || true
sleep 2
rm -f "$B/db/data/postmaster.pid" /tmp/.s.PGSQL.54329*
as "$bin/pg_ctl -w -t 60 -D $B/db/data -l $B/db/log $options start" >/dev/null
sums="$(as "$bin/psql -qAtc 'select (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers) and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)' postgres")"
as "$bin/pgbench -n -c 4 -T 5 postgres" >"$WORK/again.txt" 2>&1
as "$bin/pg_ctl -w -m fast -D $B/db/data stop" >/dev/null
as "$bin/pg_checksums --check -D $A/db/data" >/dev/null 2>&1 || true
test "$sums" = t
grep -h 'tps' "$WORK/again.txt" | head -n 1
