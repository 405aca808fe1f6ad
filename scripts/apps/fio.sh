# packages: fio
# Written on one mount, verified on the other, buffered, direct and mapped.
for engine in psync:0 libaio:1 mmap:0; do
    set -- "--name=${engine%:*}" "--ioengine=${engine%:*}" "--direct=${engine#*:}" --size=64m --bs=16k --verify=crc32c --verify_fatal=1 --minimal
    fio "$@" --directory="$A" --rw=write --do_verify=0 >/dev/null
    fio "$@" --directory="$B" --rw=read >/dev/null
    fio "$@" --directory="$B" --rw=randwrite --do_verify=1 >/dev/null
    fio "$@" --directory="$A" --rw=read >/dev/null
done
echo "3 engines, 64 MiB each, both ways"
