# packages: git
# A repository made on one mount, worked on from both, checked.
export HOME="$WORK"
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global --add safe.directory '*'
git init -q -b main "$A/repo"
for n in $(seq 1 200); do
    place="$A"
    [ $((n % 2)) -eq 0 ] && place="$B"
    mkdir -p "$place/repo/d$((n % 7))"
    echo "$n" >>"$place/repo/d$((n % 7))/f$((n % 31))"
    git -C "$place/repo" add -A
    git -C "$place/repo" commit -q -m "$n"
done
git -C "$A/repo" gc -q
git -C "$B/repo" fsck --full --strict 2>/dev/null
test -z "$(git -C "$A/repo" status --porcelain)$(git -C "$B/repo" status --porcelain)"
echo "$(git -C "$B/repo" rev-list --count HEAD) commits by turns"
