# packages: git
# A repository made on one mount, worked on from both, checked.
export HOME="$WORK"
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global --add safe.directory '*'
git init -q -b main "$A/work"
for n in $(seq 1 200); do
    place="$A"
    [ $((n % 2)) -eq 0 ] && place="$B"
    mkdir -p "$place/work/d$((n % 7))"
    echo "$n" >>"$place/work/d$((n % 7))/f$((n % 31))"
    git -C "$place/work" add -A
    git -C "$place/work" commit -q -m "$n"
done
git -C "$A/work" gc -q
git -C "$B/work" fsck --full --strict 2>/dev/null
test -z "$(git -C "$A/work" status --porcelain)$(git -C "$B/work" status --porcelain)"
echo "$(git -C "$B/work" rev-list --count HEAD) commits by turns"
