#!/usr/bin/env python3
"""The figures of docs/performance.md: Holdfast beside ext4, and two nodes beside one, in one run.

usage: figures.py --holdfast BINARY --out FILE.json [--dir DIR] [--runs N] [--scale F] [--only GROUP,...]

Makes for each group of rows a file system of its own, ext4 in a file below DIR (default /var/tmp), on a loop
device; the volume and the directory for comparison both lie on it, so that neither meets the other's history or a
disk of its own. Sides take turns, run by run. Prints a table in Markdown, with the median of the runs and half of
their range as a share of it. Needs root. Leaves nothing behind.
"""
import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from rig import Bench, Figure, said
from rows import GROUPS, ON_REQUEST
from whole import write_whole

FAILURES = (RuntimeError, KeyError, ValueError, ArithmeticError, OSError, subprocess.SubprocessError)
HEAD = "| figure | goal | value | measured | met |\n|---|---|---|---|---|"
# Below it a median says little.
RUNS_ENOUGH = 3
# Of each processor; above it others are measured as well.
LOAD_QUIET = 0.25


def main() -> int:
    args = arguments()
    if os.geteuid() != 0:
        print("figures.py: needs root", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    binary = str(Path(args.holdfast).resolve())
    about = surroundings(binary, args)
    print(f"\n{', '.join(f'{key} {value}' for key, value in about.items() if value != '')}\n\n{HEAD}", flush=True)
    result: dict[str, object] = {"about": about}
    notes = warnings(about)
    is_whole = True
    try:
        for group in args.only:
            with tempfile.TemporaryDirectory(prefix="holdfast-figures-", dir=args.dir) as base:
                bench = Bench(binary, Path(base), args.runs, args.scale, args.options, args.growth_to)
                figures, failure = measured(bench, group)
            for figure in figures:
                print(figure.line(), flush=True)
            if failure:
                print(f"| {group} | | not measured | {failure} | |", flush=True)
            is_whole &= not failure
            notes += bench.notes
            result[group] = [vars(figure) for figure in figures]
            write_whole(args.out, json.dumps({**result, "notes": notes}, indent=1, ensure_ascii=False))
    except KeyboardInterrupt:
        print("broken off", file=sys.stderr)
        return 130
    finally:
        print("\n".join(["", *(f"- {note}" for note in notes)]), flush=True)
    return 0 if is_whole else 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdfast", required=True, help="the binary, built for release")
    parser.add_argument("--out", required=True, type=Path, help="where all values go, as JSON")
    parser.add_argument("--dir", default="/var/tmp", help="where the file system is made; 24 GiB, sparse")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the usual numbers of files and calls")
    parser.add_argument("--only", type=group_names, default=[name for name in GROUPS if name not in ON_REQUEST], help="groups of rows: " + ", ".join(GROUPS))
    parser.add_argument("--options", default="", help="mount options of all nodes")
    parser.add_argument("--growth-to", type=int, default=1_000_000, metavar="N", help="last step of growth, up to 10,000,000 files")
    return parser.parse_args()


def group_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    return names


def measured(bench: Bench, group: str) -> tuple[list[Figure], str]:
    """The rows of a group, or why there are none; everything it mounted is gone."""
    try:
        with bench:
            return GROUPS[group](bench), ""
    except FAILURES as error:
        return [], " ".join(f"{type(error).__name__}: {error}".split())


def surroundings(binary: str, args: argparse.Namespace) -> dict[str, object]:
    """What the figures are of, for whoever reads them later."""
    return {
        "version": said(binary, "--version").strip(),
        "kernel": platform.release(),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1),
        "options": args.options,
        "runs": args.runs,
        "scale": args.scale,
    }


def warnings(about: dict) -> list[str]:
    found = []
    if about["runs"] < RUNS_ENOUGH:
        found.append(f"{about['runs']} is too few runs to tell a difference from chance")
    if about["load"] > about["cores"] * LOAD_QUIET:
        found.append(f"the machine was busy: a load of {about['load']} on {about['cores']} cores when it began")
    return found


if __name__ == "__main__":
    sys.exit(main())
