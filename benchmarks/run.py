"""One run from start to end, in this process: also what the test calls."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import psycopg
from rich.console import Console

from benchmarks import report
from benchmarks.before import BEFORE
from benchmarks.bench import Bench, table
from benchmarks.contenders import REGISTRY
from benchmarks.measure import Meter
from benchmarks.plan import Plan
from benchmarks.progress import Progress
from benchmarks.results import Results
from benchmarks.scenarios import SCENARIOS
from benchmarks.server import running_server

_HOT = "select coalesce(n_tup_upd, 0), coalesce(n_tup_hot_upd, 0) from pg_stat_user_tables where relid = %s::regclass"


def run(
    plan: Plan,
    console: Console,
    *,
    dsn: str | None = None,
    only: Collection[str] = (),
    contenders: Collection[str] = (),
    before: str = BEFORE,
    quiet: bool = False,
) -> tuple[dict[str, Any], Results]:
    """`contenders`: of those only, by the beginning of their names."""
    names = tuple(name.lower() for name in contenders)
    chosen = [each for each in REGISTRY.values() if not names or each.name.lower().startswith(names)]
    with running_server(dsn) as server:
        if plan.durable:
            server.check_durable()
        facts = report.environment(server, plan)
        bench = Bench(plan, server, Meter(server.admin), chosen, Progress(console, quiet=quiet), before)
        report.print_environment(console, facts, sees_server=bench.meter.sees_server)
        bench.results.facts["busy"] = report.busy(facts)
        for name, scenario in SCENARIOS.items():
            if not only or name in only:
                scenario(bench)
        bench.results.facts["hot"] = _hot_shares(bench)
        return facts, bench.results


def _hot_shares(bench: Bench) -> dict[str, float]:
    """Of all updates of this run. Read after the sessions have ended, when backends have reported their counters."""
    time.sleep(0.3)
    shares: dict[str, float] = {}
    for contender in bench.contenders:
        updated = hot = 0
        for purpose in bench.purposes(contender):
            with psycopg.connect(bench.database(contender, purpose), autocommit=True) as conn:
                row = conn.execute(_HOT, [table(contender).as_string(conn)]).fetchone()
            updated, hot = updated + (row[0] if row else 0), hot + (row[1] if row else 0)
        if updated:
            shares[contender.name] = 100 * hot / updated
    return shares
