#!/usr/bin/env python3
"""Measures one directory with `holdfast bench` and with fio, by turns, and says where they differ by more than their runs do.

usage: agree.py HOLDFAST DIRECTORY [--runs N] [--size MIB]

HOLDFAST is the binary, DIRECTORY any directory with room. Needs fio, and root to empty the kernel's caches. Exit code 1 if a figure differs.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile


def drop_caches():
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as caches:
        caches.write("3")


def bench(arguments, binary, directory):
    command = [binary, "bench", arguments[0], directory, "--runs", "1", "--json", *arguments[1:]]
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {figure["name"]: figure["median"] for figure in document["figures"]}


def fio(directory, *options):
    command = ["fio", "--name=agree", f"--directory={directory}", "--ioengine=psync", "--output-format=json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"][0]


def stream(binary, directory, mib):
    """MB/s: written with an fsync at the end, and read with nothing cached."""
    figures = bench(["ladder", "--size", f"{mib}M"], binary, directory)
    ours = {"write": figures["write, file system"], "read": figures["read, file system"]}
    with tempfile.TemporaryDirectory(dir=directory) as place:
        options = ["--bs=1M", f"--size={mib}M", "--fallocate=none"]
        drop_caches()
        written = fio(place, "--rw=write", "--end_fsync=1", *options)
        drop_caches()
        read = fio(place, "--rw=read", "--invalidate=0", *options)
        # The whole time: what fio calls bandwidth leaves the last fsync out.
        theirs = {"write": mib * 1.048576 / (written["job_runtime"] / 1e3), "read": read["read"]["bw_bytes"] / 1e6}
    return ours, theirs


def latency(binary, directory, _mib):
    """Seconds, medians: reads past the page cache, and writes with an fsync after each."""
    ours = bench(["latency", "--count", "1000", "--calls", "read,write+fsync"], binary, directory)
    with tempfile.TemporaryDirectory(dir=directory) as place:
        options = ["--bs=4k", "--size=8M", "--number_ios=1000", "--norandommap"]
        read = fio(place, "--rw=randread", "--direct=1", *options)["read"]
        job = fio(place, "--rw=randwrite", "--fsync=1", "--percentile_list=50", *options)
        middle = lambda part: part["percentile"]["50.000000"] / 1e9
        written = middle(job["write"]["clat_ns"]) + middle(job["sync"]["lat_ns"])
        return ours, {"read": middle(read["clat_ns"]), "write+fsync": written}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdfast")
    parser.add_argument("directory")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the stream")
    options = parser.parse_args()
    differs = False
    print(f"{'':19} {'bench':>11} {'spread':>6} {'fio':>11} {'spread':>6} {'ratio':>6}")
    for measure, show in [(stream, lambda mb: f"{mb:.0f} MB/s"), (latency, lambda s: f"{s * 1e6:.1f} us")]:
        pairs = [measure(options.holdfast, options.directory, options.size) for _ in range(options.runs)]
        for name in pairs[0][0]:
            sides = [[pair[side][name] for pair in pairs] for side in (0, 1)]
            medians = [statistics.median(side) for side in sides]
            spreads = [(max(side) - min(side)) / 2 / median for side, median in zip(sides, medians)]
            ratio = medians[0] / medians[1]
            agrees = abs(ratio - 1) <= sum(spreads)
            differs |= not agrees
            print(
                f"{measure.__name__ + ' ' + name:19} {show(medians[0]):>11} {spreads[0]:>6.0%} "
                f"{show(medians[1]):>11} {spreads[1]:>6.0%} {ratio:>6.2f} {'' if agrees else 'DIFFERS'}"
            )
    sys.exit(differs)


main()
