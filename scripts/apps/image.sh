# packages: qemu-utils
# A file system in a file of one mount, past the page cache, and a machine's disk, both read and checked by way of the other.
truncate -s 300M "$A/image"
mkfs.ext4 -q -F "$A/image"
mkdir "$WORK/inner"
device="$(losetup --direct-io=on -f --show "$A/image")"
trap 'umount -l "$WORK/inner" 2>/dev/null || true; losetup -d "$device" 2>/dev/null || true' EXIT
mount "$device" "$WORK/inner"
cp -a /usr/include "$WORK/inner"
(cd "$WORK/inner" && find . -type f -exec md5sum {} + | sort) >"$WORK/written.txt"
fstrim "$WORK/inner"
umount "$WORK/inner"
losetup -d "$device"
e2fsck -fn "$B/image" >"$WORK/checked.txt" 2>&1
device="$(losetup -f --show "$B/image")"
mount "$device" "$WORK/inner"
(cd "$WORK/inner" && find . -type f -exec md5sum {} + | sort) >"$WORK/read.txt"
umount "$WORK/inner"
losetup -d "$device"
cmp "$WORK/written.txt" "$WORK/read.txt"
qemu-img create -q -f qcow2 "$A/disk" 1G
qemu-io -f qcow2 -c 'write -P 7 0 64M' -c 'write -P 9 500M 1M' -c 'discard 8M 8M' -c flush "$A/disk" >/dev/null
qemu-img check "$B/disk" >/dev/null
qemu-img convert -O raw "$B/disk" "$A/raw"
qemu-img compare -q "$A/disk" "$B/raw"
echo "$(wc -l <"$WORK/read.txt") files in an image, and a disk"
