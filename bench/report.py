"""From what the workloads printed to figures, and from figures to a table that says who is ahead."""
import json
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

OURS = "holdfast"
# With fewer than three runs a spread says nothing; differences below this are then taken for chance.
FEW_RUNS = 3
CHANCE = 0.5


@dataclass(frozen=True)
class Value:
    """What one run of one workload says of one figure; `wrong` if the work was not done right, so that its speed means nothing."""

    name: str
    unit: str
    higher_is_better: bool
    number: float
    wrong: str = ""


@dataclass
class Record:
    """One workload of one system in one run, as it is kept in a file of its own."""

    run: int
    system: str
    workload: str
    seconds: float = 0
    load: float = 0
    problem: str = ""
    result: Any = None


@dataclass
class Cell:
    values: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    # Runs of the workload, and those of them that came to nothing.
    runs: int = 0
    failed: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Half of the range of the runs, as a share of the median."""
        return (max(self.values) - min(self.values)) / 2 / self.median if self.median else 0.0

    @property
    def counts(self) -> bool:
        """Not by its good runs alone: what stalls in the others is not ahead."""
        return bool(self.values) and not self.wrong and not self.failed


@dataclass
class Row:
    workload: str
    name: str
    unit: str
    higher_is_better: bool
    cells: dict[str, Cell] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def ratio(self, system: str, to: str = OURS) -> float | None:
        """How many times worse `system` is than `to`; below 1 it is better."""
        ours, theirs = self.cells.get(to), self.cells.get(system)
        if ours is None or theirs is None or not ours.counts or not theirs.counts:
            return None
        better, worse = (theirs, ours) if self.higher_is_better else (ours, theirs)
        if better.median == worse.median:
            return 1.0
        return worse.median / better.median if better.median else float("inf")

    def noise(self, one: str, other: str) -> float:
        cells = self.cells[one], self.cells[other]
        few = min(len(cell.values) for cell in cells) < FEW_RUNS
        return max(sum(cell.spread for cell in cells), CHANCE if few else 0.0)

    def same(self, one: str, other: str) -> bool:
        """Whether the difference of two is no more than their runs differ."""
        ratio = self.ratio(one, other)
        if ratio is None:
            return False
        exact = self.unit in ("stale", "kept", "names")
        factor = max(ratio, 1 / ratio if ratio else float("inf"))
        return ratio == 1.0 if exact else factor <= 1 + self.noise(one, other)

    def best(self, systems: list[str]) -> list[str]:
        """The best of these, and after it those that cannot be told from it."""
        ranked = [system for system in systems if system in self.cells and self.cells[system].counts]
        ranked.sort(key=lambda system: self.cells[system].median, reverse=self.higher_is_better)
        return [system for system in ranked if system == ranked[0] or self.same(system, ranked[0])]


# ---- Figures out of what a workload printed ----


def bench_values(document: Any) -> Iterator[Value]:
    """Of `holdfast bench … --json`."""
    for figure in document["figures"]:
        unit, name, number = figure["unit"], figure["name"], figure["median"]
        if unit == "seconds" and document["bench"] in ("latency", "pingpong"):
            yield Value(f"{name}, p50", "us", False, number * 1e6)
        elif unit == "seconds":
            yield Value(name, "s", False, number)
        else:
            yield Value(name, unit.replace("per second", "/s"), unit != "stale", number)


def harness_values(tree: Any, path: tuple[str, ...] = ()) -> Iterator[Value]:
    """Of a harness: a tree of named numbers, whose names end in their units."""
    name = " ".join(path).replace("_", " ")
    if isinstance(tree, list) and len(tree) == 2 and all(isinstance(number, int) for number in tree):
        yield Value(name, "kept", True, tree[0])
    if not isinstance(tree, dict):
        return
    if "p50_us" in tree:
        yield Value(f"{name} p50", "us", False, tree["p50_us"])
        yield Value(f"{name} p99", "us", False, tree["p99_us"])
    elif "stale" in tree:
        yield Value(name, "stale", False, tree["stale"])
    elif "s" in tree:
        wrong = f"exit code {tree['rc']}: {tree.get('err', '')}".strip().replace("\n", " ")[:200] if tree.get("rc") else ""
        rate = "MiB_s" in tree
        yield Value(name, "MiB/s" if rate else "s", rate, tree["MiB_s" if rate else "s"], wrong)
    else:
        for key, below in tree.items():
            for suffix, unit, higher in (("_per_s", "/s", True), ("_us", "us", False), ("_s", "s", False)):
                if key.endswith(suffix) and isinstance(below, int | float):
                    yield Value(" ".join((*path, key.removesuffix(suffix))).replace("_", " "), unit, higher, below)
                    break
            else:
                if key.startswith("seen_") and isinstance(below, int):
                    yield Value(key.replace("_", " "), "names", True, below)
                yield from harness_values(below, (*path, key))


def line_counts(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    if isinstance(tree, dict):
        if "lines" in tree:
            yield " ".join(path).replace("_", " "), tree["lines"]
        for key, below in tree.items():
            yield from line_counts(below, (*path, key))


def values_of(record: Record) -> list[Value]:
    if record.problem or record.result is None:
        return []
    if record.workload.startswith("bench-"):
        return list(bench_values(record.result))
    values = list(harness_values(record.result))
    # Walks of one tree that count differently: the one that found fewer has not done the work.
    lines = dict(line_counts(record.result))
    most = max(lines.values(), default=0)
    wrong = {name: f"{count} of {most} lines" for name, count in lines.items() if count != most}
    return [Value(v.name, v.unit, v.higher_is_better, v.number, v.wrong or wrong.get(v.name, "")) for v in values]


def rows_of(records: list[Record]) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for record in records:
        for value in values_of(record):
            key = record.workload, value.name
            row = rows.setdefault(key, Row(record.workload, value.name, value.unit, value.higher_is_better))
            cell = row.cells.setdefault(record.system, Cell())
            cell.values.append(value.number)
            if value.wrong:
                cell.wrong.append(value.wrong)
    problems = {(record.workload, record.system): record.problem for record in records if record.problem}
    runs = Counter((record.workload, record.system) for record in records)
    failed = Counter((record.workload, record.system) for record in records if record.problem)
    for row in rows.values():
        for (workload, system), problem in problems.items():
            if workload == row.workload:
                row.problems[system] = problem
        for system, cell in row.cells.items():
            cell.runs, cell.failed = runs[row.workload, system], failed[row.workload, system]
    order = list(dict.fromkeys(record.workload for record in records))
    return sorted(rows.values(), key=lambda row: order.index(row.workload))


# ---- The table ----


def shown(number: float) -> str:
    """Three digits are as many as mean anything."""
    if abs(number) >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def cell_text(row: Row, system: str) -> str:
    cell = row.cells.get(system)
    if cell is None:
        problem = row.problems.get(system, "")
        return "not done" if problem.startswith("not done") else "failed" if problem else ""
    parts = [shown(cell.median)]
    if len(cell.values) > 1 and cell.median:
        parts.append(f"±{cell.spread:.0%}")
    if cell.failed:
        parts.append(f"in {cell.runs - cell.failed} of {cell.runs} runs")
    if cell.wrong:
        parts.append("wrong")
    ratio = row.ratio(system)
    if ratio is not None and system != OURS:
        parts.append("(∞)" if ratio == float("inf") else f"({ratio:.2g}×)" if ratio < 100 else f"({ratio:.0f}×)")
    return " ".join(parts)


def ahead_text(row: Row, rivals: list[str]) -> str:
    best = row.best(rivals)
    return " = ".join(best) if best else "nobody"


def markdown(records: list[Record], facts: dict[str, Any]) -> str:
    rows = rows_of(records)
    systems: list[str] = [name for name in facts["systems"] if any(record.system == name for record in records)]
    rivals = [name for name in systems if facts["systems"][name]["shared"]]
    out = ["# Rivals", ""]
    out += [f"{name}: {text}  " for name, text in facts["measured"].items()]
    out += ["", "| System | Version | Settings |", "|---|---|---|"]
    for name in systems:
        system = facts["systems"][name]
        out.append(f"| {name} | {system['version']} | {'; '.join(system['settings'])} |")
    out += ["", *LEGEND, ""]
    for workload in dict.fromkeys(row.workload for row in rows):
        out += ["", f"## {workload}", "", f"| Figure | Unit | {' | '.join(systems)} | ahead |", f"|---|---|{'---|' * len(systems)}---|"]
        for row in (row for row in rows if row.workload == workload):
            cells = " | ".join(cell_text(row, system) for system in systems)
            out.append(f"| {row.name} | {row.unit} | {cells} | {ahead_text(row, rivals)} |")
    if OURS in systems and len(rivals) > 1:
        out += standing(rows, rivals, {name for name in rivals if not facts["systems"][name]["durable"]})
    problems = [record for record in records if record.problem]
    wrong = [(row, system, text) for row in rows for system, cell in row.cells.items() for text in cell.wrong]
    if problems or wrong:
        out += ["", "## What did not work", ""]
        out += [f"- run {record.run}, {record.system}, {record.workload}: {record.problem}" for record in problems]
        out += [f"- {system}, {row.workload}, {row.name}: {text}" for row, system, text in wrong]
    return "\n".join(out) + "\n"


LEGEND = (
    "Each cell: the median of the runs, ± half of their range as a share of it, and in brackets how many times worse than Holdfast (below 1: better).",
    "A figure marked wrong does not count: the work was not done. Nor does one `in n of m runs`: the workload stalled or failed in the others. `ahead` names",
    "the best; with `=` those that cannot be told from it, because the difference is no more than the runs differ (with fewer than three runs: 1.5 times).",
    "`not done` and `failed` are of the whole workload in all runs; why, is told below. What one machine only can mount is nobody's rival.",
)


def standing(rows: list[Row], rivals: list[str], forgetful: set[str]) -> list[str]:
    behind, even, ahead = [], [], 0
    for row in rows:
        best = row.best(rivals)
        if not best or (OURS not in row.cells and OURS not in row.problems):
            continue  # Nobody has it, or it is counted only where it goes wrong.
        where = f"{row.workload}, {row.name}"
        if OURS not in best:
            ratio = row.ratio(best[0])
            by = "has no figure" if ratio is None else f"{1 / ratio:.2g} times worse" if ratio else "worse"
            unlike = [name for name in best if name in forgetful] if "fsync" in row.name else []
            but = f"; not on disk then: {', '.join(unlike)}" if unlike else ""
            behind.append(f"- {where}: {' = '.join(best)} ahead, Holdfast {by} ({cell_text(row, OURS) or 'not measured'}){but}")
        elif len(best) > 1:
            even.append(f"{where} ({', '.join(name for name in best if name != OURS)})")
        else:
            ahead += 1
    out = ["", "## Where Holdfast stands", "", f"Ahead in {ahead} rows, level in {len(even)}, behind in {len(behind)}."]
    if behind:
        out += ["", "Not ahead:", "", *behind]
    if even:
        out += ["", f"Level with the best: {'; '.join(even)}."]
    return out


def document(records: list[Record], facts: dict[str, Any]) -> str:
    rivals = [name for name, system in facts["systems"].items() if system["shared"]]
    figures = []
    for row in rows_of(records):
        systems = {}
        for name, cell in row.cells.items():
            ratio = row.ratio(name)
            systems[name] = {
                "values": cell.values,
                "median": cell.median,
                "spread": cell.spread,
                "times_worse_than_holdfast": None if ratio == float("inf") else ratio,
                "wrong": cell.wrong,
                "runs": cell.runs,
                "failed_runs": cell.failed,
            }
        better = "higher" if row.higher_is_better else "lower"
        figures.append(
            {"workload": row.workload, "name": row.name, "unit": row.unit, "better": better, "ahead": row.best(rivals), "systems": systems}
        )
    problems = [{"run": r.run, "system": r.system, "workload": r.workload, "problem": r.problem} for r in records if r.problem]
    return json.dumps({**facts, "figures": figures, "problems": problems}, indent=1) + "\n"
