# packages: mariadb-server
# A database past the page cache on one mount under load, killed, recovered on the other mount, checked.
chmod 777 "$WORK"
mkdir "$A/db"
chown mysql:mysql "$A/db"
socket="$WORK/socket"
mysql_install_db --user=mysql --datadir="$A/db" --skip-test-db >"$WORK/installed.txt" 2>&1
start() {
    mariadbd --no-defaults --user=mysql --datadir="$1/db" --socket="$socket" --skip-networking \
        --innodb-flush-method=O_DIRECT --innodb-buffer-pool-size=32M --log-error="$WORK/log.txt" &
    server=$!
    for _ in $(seq 1 100); do
        mariadb-admin --socket="$socket" ping >"$WORK/ping.txt" 2>&1 && return
        sleep 0.3
    done
    tail "$WORK/log.txt" >&2
    exit 1
}
sql() { mariadb --socket="$socket" -N "$@"; }
load() {
    for n in $(seq 1 20000); do
        change=$((n % 17 - 8))
        echo "start transaction; update account set balance = balance + $change where id = 1 + ($n * $1) % 1000;
            insert into history(change_by) values ($change); commit;"
    done | sql bank >"$WORK/load-$1.txt" 2>&1 || true
}
start "$A"
sql -e "create database bank; use bank; create table account(id int primary key, balance int);
    create table history(n int auto_increment primary key, change_by int); insert into account select seq, 0 from seq_1_to_1000;"
load 7 &
loads=$!
load 13 &
loads="$loads $!"
sleep 4
kill -9 "$server"
wait $loads "$server" || true
start "$B"
sums="$(sql -e 'select (select sum(balance) from account) = (select sum(change_by) from history), (select count(*) from history)' bank)"
checked="$(sql -e 'check table account, history' bank | grep -c OK)"
mariadb-admin --socket="$socket" shutdown
wait "$server"
test "${sums%%	*}" = 1
test "$checked" = 2
echo "${sums#*	} transactions before it was killed"
