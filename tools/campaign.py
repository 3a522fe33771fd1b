"""`make campaign`: many seeds of each kind of cluster, and the report for docs/explanation/reliability.md.

Each kind of cluster writes build/campaign-NAME.json; the report is made of these, so a campaign can be continued.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from spritz_testing.daemons.coverage import kinds


class Kind(NamedTuple):
    """A kind of cluster, and its share of the seeds."""

    name: str
    arguments: tuple[str, ...]
    share: float


KINDS = (
    Kind("plain", (), 0.45),
    Kind("dense", ("--scale", "dense"), 0.2),
    Kind("accounting", ("--parts", "accounting"), 0.2),
    Kind("standby", ("--parts", "standby"), 0.1),
    Kind("both", ("--parts", "accounting,standby"), 0.05),
)


def main() -> int:
    """Run the seeds. Returns 1 if a rule was violated."""
    seeds, arguments = int(sys.argv[1]), sys.argv[2:]
    build = Path("build")
    build.mkdir(exist_ok=True)
    reports = {}
    for kind in KINDS:
        count = max(1, round(seeds * kind.share))
        output = build / f"campaign-{kind.name}.json"
        command = [sys.executable, "-m", "spritz_testing.daemons", "--seeds", str(count), "--json", str(output)]
        subprocess.run([*command, *kind.arguments, *arguments], check=False)
        reports[kind.name] = json.loads(output.read_text())
    (build / "campaign.json").write_text(json.dumps(reports, indent=1) + "\n")
    (build / "campaign.md").write_text(markdown(reports))
    print(f"\nThe report is {build / 'campaign.md'}.")
    return 1 if any(report["failures"] for report in reports.values()) else 0


def markdown(reports: dict[str, dict[str, Any]]) -> str:
    """The tables: what ran, the faults by kind, what failed."""
    lines = [
        "| cluster | seeds | violations | faults | virtual days | CPU hours | virtual : CPU |",
        "|---|" + "---:|" * 6,
    ]
    for name, report in reports.items():
        virtual, cpu = report["virtual_seconds"], report["cpu_seconds"]
        cells = (report["seeds"], len(report["failures"]), report["faults"], virtual / 86_400, cpu / 3600)
        formats = ("{:,}", "{:,}", "{:,}", "{:,.1f}", "{:,.2f}")
        texts = [form.format(cell) for form, cell in zip(formats, cells, strict=True)]
        lines.append(f"| {name} | {' | '.join(texts)} | {virtual / max(cpu, 1e-9):,.0f} |")
    counts: dict[str, int] = {}
    for report in reports.values():
        for name, count in report["counts"].items():
            counts[name] = counts.get(name, 0) + count
    lines += ["", "| fault | injected |", "|---|---:|"]
    lines += [f"| {name} | {count:,} |" for name, count in kinds(counts, "fault").items()]
    points = [report["await_points"] for report in reports.values()]
    hit, of = max(one["killed_at"] for one in points), points[0]["of"]
    lines += [
        "",
        f"Kinds of messages that came: {len(kinds(counts, 'message'))}. Killed at {hit} of {of} await points.",
    ]
    failures = [(name, one) for name, report in reports.items() for one in report["failures"]]
    if failures:
        lines += ["", "| cluster | seed | violated rule |", "|---|---:|---|"]
        lines += [f"| {name} | {one['seed']} | {one['rule']} |" for name, one in failures]
    commits = sorted({report["commit"] for report in reports.values()})
    return "\n".join([*lines, "", f"Commit {', '.join(commits)}.", ""])


if __name__ == "__main__":
    sys.exit(main())
