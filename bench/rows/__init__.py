"""The groups of rows of `figures.py`, by name: each takes a rig and gives its rows."""
from collections.abc import Callable

from rig import Bench, Figure
from rows import budgets, content, growth, names, trees

GROUPS: dict[str, Callable[[Bench], list[Figure]]] = {
    "untar": trees.untar,
    "du": trees.du_again,
    "create": names.create,
    "together": names.together,
    "messages": names.messages,
    "append": names.append,
    "spread": names.spread_of_creates,
    "walk": trees.walk,
    "latency": content.latency,
    "peak": content.peak,
    "stream": content.stream,
    "device": content.device,
    "fio": content.fio,
    "budgets": budgets.budgets,
    "growth": growth.growth,
    "uring": names.uring,
}
# It changes a parameter of the kernel, so it is measured only where it is asked for.
ON_REQUEST = {"uring"}
