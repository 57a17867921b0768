"""Markdown, an SVG and JSON of one run, the targets that compare with peers, and the comparison of two runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.peers.scenarios import HELD, Figure, Results, empty_before
from benchmarks.targets import Verdict

OURS = ("Tarry", "Tarry, journal off", "Tarry over HTTP")
PEERS = ("originals' SQL", "PgQueuer", "Procrastinate", "graphile-worker", "pg-boss", "pgmq", "PgQue")
WORKERS_ONLY = ("Procrastinate", "graphile-worker")
"""Peers whose only way to consume is a worker: compared with Tarry's worker, not with single polls."""
WORKERS = {"graphile-worker": 1.0, "PgQueuer": 2.0}
"""P1: how many times their jobs per second Tarry's worker has to run."""
LEVEL = 1.05
"""Ratios nearer to one are not resolved."""


def markdown(facts: dict[str, Any], results: Results) -> str:
    lines = [
        "# Tarry beside its peers",
        "",
        f"{facts['date']}, commit {facts['commit']}, PostgreSQL {facts['postgresql']}, Python {facts['python']}, "
        f"{facts['cores']} cores, load {facts['load_before']:.1f} before and {facts['load_after']:.1f} after, "
        f"{facts['steal']:.1f} % of the CPU time stolen. Medians of {facts['rounds']} rounds, in turns. `fsync` and "
        "`synchronous_commit` are on.",
    ]
    for measure in dict.fromkeys([*results.figures, *results.missing]):
        lines += ["", f"## {measure[0].upper()}{measure[1:]}", "", *_table(measure, results)]
    lines += [
        "",
        "## What Tarry does better, and what a peer does better",
        "",
        "How many times better, with the journal on. Within 5 % is level. Void: a contender collapsed in a round, or did not "
        "reach the size. A slow-down is the backend CPU per message beside so many messages, or at the end, divided by "
        "that in the empty queue, or at the start.",
        "",
        "| scenario | figure | Tarry is better than | better than Tarry | level | void |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in comparisons(results)),
        "",
        "## Targets",
        "",
        "Ratios within the rounds of this run, journal on. The other parts of P1 to P9 are in the table of `make bench`.",
        "",
        "| target | formula | required | measured | |",
        "|---|---|---|---|---|",
    ]
    for check in targets(results):
        reason = check.unfit or check.collapsed
        status = check.status.value + (f" ({reason})" if reason else "")
        measured = "–" if check.measured is None else f"{check.measured:.2f} ×"
        lines.append(f"| {check.target} | {check.formula} | ≥ {check.limit:g} × | {measured} | {status} |")
    return "\n".join([*lines, ""])


_COMPARED: tuple[tuple[str, Callable[[Figure], float | None], bool], ...] = (
    ("messages/s", lambda f: f.rate or None, True),
    ("CPU µs", lambda f: None if f.backend_us is None else f.client_us + f.backend_us, False),
    ("p50 ms", lambda f: None if f.rate else f.p50_ms, False),
    ("p99 ms", lambda f: None if f.rate else f.p99_ms, False),
)
"""What is compared, and whether more is better. Delays are compared where there is no rate."""


def comparisons(results: Results) -> list[tuple[str, ...]]:
    """Per scenario and figure: which peers Tarry is better than, which are better, which are level, which ratio is void."""
    rows: list[tuple[str, ...]] = []
    for measure, by_name in results.figures.items():
        for figure, value, more_is_better in _COMPARED:
            ratios: dict[str, tuple[float, str]] = {}
            for peer in by_name:
                ratio = results.ratio(measure, OURS[0], peer, value)
                if peer not in OURS and ratio:
                    ratios[peer] = (ratio if more_is_better else 1 / ratio), results.void(measure, OURS[0], peer)
            if ratios:
                rows.append((measure, figure, *_sides(ratios)))
    for before, after in _slowed(results):
        ours = _slow_down(results, before, after, OURS[0])
        peers = [name for name in results.figures[after] if name not in OURS]
        ratios = {
            peer: (theirs / ours, results.void(after, OURS[0], peer, of="size"))
            for peer in peers
            if ours and (theirs := _slow_down(results, before, after, peer))
        }
        if ratios:
            rows.append((after, f"slow-down (Tarry {ours:.2f} ×)", *_sides(ratios)))
    return rows


def _sides(ratios: dict[str, tuple[float, str]]) -> tuple[str, ...]:
    ordered = sorted(ratios.items(), key=lambda item: -item[1][0])
    valid = [(peer, ratio) for peer, (ratio, void) in ordered if not void]
    return (
        ", ".join(f"{peer} {ratio:.2f} ×" for peer, ratio in valid if ratio > LEVEL),
        ", ".join(f"{peer} {1 / ratio:.2f} ×" for peer, ratio in reversed(valid) if ratio < 1 / LEVEL),
        ", ".join(peer for peer, ratio in valid if 1 / LEVEL <= ratio <= LEVEL),
        ", ".join(f"{peer} ({void})" for peer, (_, void) in ordered if void),
    )


def _slowed(results: Results) -> list[tuple[str, str]]:
    """Measures of one thing before and after something that may slow it down."""
    pairs = [HELD, *((empty_before(measure.partition(", ")[2]), measure) for measure in results.figures)]
    return [(before, after) for before, after in pairs if before in results.figures and after in results.figures]


def _slow_down(results: Results, before: str, after: str, name: str) -> float | None:
    costs = [results.median(measure, name, lambda f: f.backend_us) for measure in (before, after)]
    return costs[1] / costs[0] if costs[0] and costs[1] else None


_COLUMNS: tuple[tuple[str, Callable[[Figure], float | None], str], ...] = (
    ("messages/s", lambda f: f.rate or None, ",.0f"),
    ("client µs", lambda f: f.client_us or None, ",.0f"),
    ("backend µs", lambda f: f.backend_us, ",.0f"),
    ("WAL B", lambda f: f.wal_bytes or None, ",.0f"),
    ("commits", lambda f: f.commits or None, ",.3f"),
    ("p50 ms", lambda f: f.p50_ms, ",.2f"),
    ("p99 ms", lambda f: f.p99_ms, ",.2f"),
    ("client MiB", lambda f: f.memory_mib or None, ",.0f"),
)


def _table(measure: str, results: Results) -> list[str]:
    lines = [f"| | {' | '.join(name for name, _, _ in _COLUMNS)} | |", f"|---{'|---' * (len(_COLUMNS) + 1)}|"]
    for name, figures in results.figures.get(measure, {}).items():
        cells = [
            "–" if (value := results.median(measure, name, read)) is None else format(value, form)
            for _, read, form in _COLUMNS
        ]
        notes = {figure.note for figure in figures if figure.note}
        if results.collapsed(measure, name):
            notes.add("collapsed in a round")
        lines.append(f"| {name} | {' | '.join(cells)} | {'; '.join(sorted(notes))} |")
    for name, reason in results.missing.get(measure, {}).items():
        if name not in results.figures.get(measure, {}):
            lines.append(f"| {name} |{' – |' * len(_COLUMNS)} not measured: {reason} |")
    return lines


def targets(results: Results) -> list[Verdict]:
    """The targets that compare Tarry with its peers."""
    rows = [
        *(_against(results, "P2", "produce one", peer, 1.2) for peer in PEERS),
        *(_against(results, "P3", "consume one × 1", peer, 1.5) for peer in PEERS if peer not in WORKERS_ONLY),
        *(_against(results, "P3", "worker, concurrency 1", peer, 1.5) for peer in WORKERS_ONLY),
        _against(results, "P5", "consume 1,000 × 1", "originals' SQL", 1.5),
        *(_against(results, "P6", "produce 1,000", peer, 1.5) for peer in PEERS),
    ]
    for concurrency in (64, 256):
        measure = f"worker, concurrency {concurrency}"
        rows += [_against(results, "P1", measure, peer, limit) for peer, limit in WORKERS.items()]
    return sorted(rows, key=lambda row: row.target)


def _against(results: Results, target: str, measure: str, peer: str, limit: float) -> Verdict:
    ratio = results.ratio(measure, OURS[0], peer)
    reason = results.missing.get(measure, {}).get(peer, "not part of this run")
    return Verdict(
        target=target,
        formula=f"{measure} / {peer}",
        measured=ratio,
        limit=limit,
        at_least=True,
        unit="×",
        unfit="" if ratio is not None else reason,
        collapsed=results.void(measure, OURS[0], peer),
    )


def to_json(facts: dict[str, Any], results: Results) -> str:
    figures = {
        measure: {name: [asdict(figure) for figure in turns] for name, turns in by_name.items()}
        for measure, by_name in results.figures.items()
    }
    return json.dumps({"facts": facts, "figures": figures, "missing": results.missing}, indent=1) + "\n"


def from_json(path: Path) -> tuple[dict[str, Any], Results]:
    document = json.loads(path.read_text())
    figures = {
        measure: {name: [Figure(**turn) for turn in turns] for name, turns in by_name.items()}
        for measure, by_name in document["figures"].items()
    }
    return document["facts"], Results(figures, document["missing"])


def compared(before: Path, after: Path) -> str:
    """Two runs, side by side. CPU per message depends less on the machine's load than rates do."""
    (old_facts, old), (new_facts, new) = from_json(before), from_json(after)
    lines = [
        f"{old_facts['commit']} ({old_facts['date']}) → {new_facts['commit']} ({new_facts['date']})",
        "",
        "| measure | contender | messages/s | client µs | backend µs |",
        "|---|---|---|---|---|",
    ]
    for measure, by_name in new.figures.items():
        for name in by_name:
            cells = [
                _change(old.median(measure, name, read), new.median(measure, name, read))
                for read in (lambda f: f.rate, lambda f: f.client_us, lambda f: f.backend_us)
            ]
            lines.append(f"| {measure} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return "–"
    return f"{before:,.0f} → {after:,.0f} (× {after / before:.2f})"


_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 }
  .ours { fill: #0072b2 } .peer { fill: #8c8c8c }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""


def svg(results: Results) -> str:
    """One panel of bars per measure of a rate, on a logarithmic scale, ours in blue."""
    parts: list[str] = []
    y = 20
    for measure, by_name in results.figures.items():
        rates = {name: rate for name in by_name if (rate := results.median(measure, name, lambda f: f.rate or None))}
        if not rates:
            continue
        parts.append(f'<text class="title" x="10" y="{y}">{escape(measure)}, messages/s</text>')
        top = math.log10(max(rates.values())) or 1.0
        for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
            y += 18
            width = max(2.0, 480 * max(0.0, math.log10(rate)) / top)
            kind = "ours" if name in OURS else "peer"
            parts.append(f'<text x="140" y="{y}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="148" y="{y - 10}" width="{width:.0f}" height="12" rx="2"/>')
            parts.append(f'<text x="{154 + width:.0f}" y="{y}">{rate:,.0f}</text>')
        y += 34
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {y}" role="img">'
    return f"{head}<style>{_STYLE}</style>\n{body}\n</svg>\n"
