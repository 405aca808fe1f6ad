# packages: rsync libc6-dev
# A tree by rsync to one mount, compared by checksums from the other, changed there, and back.
tree=/usr/include
rsync -a "$tree/" "$A/tree/"
test -z "$(rsync -anic "$tree/" "$B/tree/")"
find "$B/tree" -type f -name '*.h' | head -50 | while read -r file; do echo changed >>"$file"; done
rsync -a --delete "$A/tree/" "$WORK/back/"
test -z "$(rsync -anic --delete "$B/tree/" "$WORK/back/")"
test "$(rsync -anic "$tree/" "$A/tree/" | wc -l)" -eq 50
echo "$(find "$A/tree" | wc -l) entries"
