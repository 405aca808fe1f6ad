# packages: gcc make libc6-dev dpkg-dev sqlite3
# A large C file and a hundred small ones by make -j2, half of the steps from each mount.
mkdir "$A/src"
for n in $(seq 1 200); do
    echo "#include <stdio.h>
int f$n(int x) { return x * $n + $((n * n)); }" >"$A/src/f$n.c"
done
{
    seq 1 200 | sed 's/.*/int f&(int);/'
    echo 'int printf(const char *, ...); int main(void) { long s = 0;'
    seq 1 200 | sed 's/.*/s += f&(&);/'
    echo 'printf("%ld", s); return 0; }'
} >"$A/src/main.c"
cat >"$A/src/Makefile" <<'MAKE'
all: main
main: $(patsubst %.c,%.o,$(wildcard *.c))
	cc -o $@ $^
half: $(patsubst %.c,%.o,$(wildcard f1*.c))
MAKE
make -s -j2 -C "$A/src" half
make -s -j2 -C "$B/src" all
test "$("$A/src/main")" = "$("$B/src/main")"
test -z "$(make -s -C "$A/src" -q all && echo || echo stale)"
echo "main says $("$A/src/main")"
