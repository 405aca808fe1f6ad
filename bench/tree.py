"""Trees of empty files that are made, walked and looked at; every walk counts what it found."""
import contextlib
import os
import subprocess
import time
from pathlib import Path

from rig import timed

IN_DIRECTORY = 100


def make_tree(root: Path, files: int, directories: int | None = None) -> int:
    """Makes `files` in so many directories (one for each 100), 100 of those in another; how many inodes there are, `root` among them."""
    root.mkdir()
    leaves = directories or -(-files // IN_DIRECTORY)
    return 1 + sum(make_leaf(root, leaf, range(files * leaf // leaves, files * (leaf + 1) // leaves)) for leaf in range(leaves))


def make_leaf(root: Path, leaf: int, files: range) -> int:
    """Makes one directory with its files, and before the first of a hundred the one above; how many inodes that were."""
    place = leaf_of(root, leaf)
    if leaf % IN_DIRECTORY == 0:
        place.parent.mkdir()
    place.mkdir()
    for file in files:
        os.mknod(f"{place}/file{file}", 0o644)
    return len(files) + (2 if leaf % IN_DIRECTORY == 0 else 1)


def leaf_of(root: Path, leaf: int) -> Path:
    return root / f"d{leaf // IN_DIRECTORY}" / f"e{leaf}"


def file_of(root: Path, file: int) -> Path:
    """The path of a file in a tree with 100 in each directory."""
    return leaf_of(root, file // IN_DIRECTORY) / f"file{file}"


def find_ls(*roots: Path, inodes: int, scratch: Path) -> float:
    """Seconds for `find -ls` of each of `roots` at once, until the last has ended. One that finds fewer inodes than there are is an error.

    The lines go to /dev/null; what is counted is a mark that find(1) writes for each into `scratch`.
    """
    marks = [scratch / f"found{number}" for number, _ in enumerate(roots)]
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        walks = []
        for root, mark in zip(roots, marks):
            command = ["find", str(root), "-ls", "-fprintf", str(mark), "."]
            walks.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL)))
        codes = [walk.wait() for walk in walks]
    took = time.monotonic() - begun
    for root, mark, code in zip(roots, marks, codes):
        found = mark.stat().st_size
        if code != 0 or found != inodes:
            raise RuntimeError(f"find {root}: exit code {code}, found {found} of {inodes}")
    return took


def du(root: Path) -> float:
    """Seconds for du(1) of all."""
    return timed("du", "-s", root)
