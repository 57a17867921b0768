"""What happened in the demo: counted by the provider and the offering side, not by Tarry."""

from __future__ import annotations

from statistics import quantiles

from rich.table import Table

from examples.demo.story import CANARIES, EXPIRED, Stage
from examples.demo.worker import ORDERS, PAYMENTS


async def summarize(stage: Stage) -> bool:
    """Print the totals. Whether nothing was lost, doubled or early, and every payment was charged once."""
    effects, counts, console = stage.provider.effects, stage.app.queues.counts, stage.console
    shipped, charged = effects[ORDERS], effects[PAYMENTS]
    handled = {**shipped, **charged}
    lost = stage.offered - handled.keys()
    doubled = [key for key, deliveries in handled.items() if len(deliveries) > 1]
    early = sum(each.leased < each.due for kind in effects.values() for times in kind.values() for each in times)
    redelivered = [key for key, (first, *_) in shipped.items() if first.attempt > 1]
    late = [(first.leased - first.due) * 1000 for first, *_ in shipped.values() if first.attempt == 1]
    cuts = quantiles(late, n=100) if len(late) > 1 else [0.0] * 99
    unpaid, dead = (await counts(ORDERS)).dead.n, (await counts(PAYMENTS)).dead.n
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in (
        ("offered", len(stage.offered), f"orders and payments, {stage.updated} of them changed once more before due"),
        ("acked", len(handled), "by workers, of which one was killed with -9 and one replaced by a deploy"),
        ("redelivered", len(redelivered), "leased by the killed worker, after its leases expired"),
        ("refused", stage.provider.refusals, "attempts while the provider was down: each was tried again, later"),
        ("dead letters", unpaid + stage.died, f"{unpaid} with an expired card, {stage.died} of the outage"),
        ("redriven", stage.died - dead, f"those of the outage, {CANARIES} of them as canaries"),
        ("lost", len(lost), "offered, and never handled"),
        ("doubled", len(doubled), "shipped or charged twice"),
        ("early", early, "delivered before due, by the database's clock"),
        ("late, p50", f"{cuts[49]:.1f} ms", "due → leased, first deliveries of orders"),
        ("late, p99", f"{cuts[98]:.1f} ms", ""),
    ):
        table.add_row(*map(str, row))
    console.print()
    console.print(table)
    if redelivered:
        await _show_timeline(stage, redelivered[0])
    whole = not (lost or doubled or early or dead) and unpaid == EXPIRED
    console.print(
        "[bold green]Nothing lost, nothing doubled, nothing early.[/]" if whole else "[bold red]Something is wrong.[/]"
    )
    return whole


async def _show_timeline(stage: Stage, key: str) -> None:
    stage.console.print(f"The life of [bold]{key}[/], from the journal:")
    events = await stage.app.store.run(stage.app.store.journal.timeline(ORDERS, key, limit=20))
    for event in events:
        since = (event.at - events[0].at).total_seconds()
        stage.console.print(f"  {since:8.3f} s  {event.kind:<9} attempt {event.attempt or 0}  {event.consumer or ''}")
