"""System: the database, the checks of `tarry doctor`, settings, and the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from tarry import admin
from tarry.core.maintenance.database import DatabaseStatus
from tarry.core.security.api_keys import Action
from tarry.core.security.audit import AUDITS_SEARCHED, Audited
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.formats import roughly
from tarry.edges.secrets import without_secrets
from tarry.wire.base import data_of

screen = Screen("system", "System", "/system", shortcut="y", icon="system")
TABS = (
    ("/system", "Database", "read"),
    ("/system/checks", "Checks", "admin"),
    ("/system/settings", "Settings", "admin"),
    ("/system/audit", "Audit log", "admin"),
)
LARGEST = 10
"""Tables that are shown at once."""
NOTIFY_LIMIT = 0.5
"""Above this share of its notification queue, a session of the server does not listen."""
FROZEN_LIMIT = 1_000_000_000
_SECRET = ("password", "secret", "token", "dsn")

_TABLES = (
    Column("name", "Table", "code"),
    Column("bytes", "Size", "bytes"),
    Column("index_bytes", "Indexes", "bytes", hide_small=True),
    Column("live", "Live rows", "number", hide_small=True),
    Column("dead", "Dead rows", "number"),
    Column("dead_share", "Dead", "number", hide_small=True),
    Column("autovacuum", "Autovacuum", hide_small=True),
    Column("vacuumed_at", "Vacuumed", "time", hide_small=True),
    Column("analyzed_at", "Analyzed", "time", hide_small=True),
)
_PARTITIONS = (
    Column("day", "Day (UTC)", value=lambda row: row.day or "overflow"),
    Column("rows", "Events", "number"),
    Column("bytes", "Size", "bytes"),
)
_TRANSACTIONS = (
    Column("session", "Session"),
    Column("pid", "PID", "code"),
    Column("user", "User", hide_small=True),
    Column("state", "State", hide_small=True),
    Column("prevents_vacuum", "Prevents vacuum", value=lambda row: "yes" if row.prevents_vacuum else "no"),
    Column("age_for", "Open for", "duration"),
)
_LEADERS = (
    Column("name", "Work"),
    Column("holder", "Leader", "code"),
    Column("fence", "Fencing token", "number", hide_small=True),
    Column("lease_until", "Lease until", "time"),
)
_FINDINGS = (
    Column("check", "Check"),
    Column(
        "result", "Result", "state", value=lambda row: "warning" if row.warning else "good" if row.ok else "critical"
    ),
    Column("found", "Found", value=lambda row: without_secrets(" ".join(row.actual.split()))),
    Column("hint", "What to do", value=lambda row: "" if row.ok and not row.warning else row.hint, hide_small=True),
)
_MIGRATIONS = (
    Column("number", "Number", "code", value=lambda row: f"{row.number:04}"),
    Column("name", "Migration"),
    Column("phase", "Phase", hide_small=True),
    Column("state", "State", "state"),
    Column("applied_at", "Applied", "time"),
)
_AUDIT = (
    Column("at", "When", "time"),
    Column("actor", "Actor", "code", hide_small=True),
    Column("action", "Action"),
    Column("queue", "Queue", href=lambda row: path("queues", row.queue) if row.queue else None),
    Column("status", "Status", "code", value=lambda row: row.status),
    Column("detail", "Detail", value=lambda row: row.detail, hide_small=True),
    Column("request_id", "Request", "code", hide_small=True),
)


class SystemConcern(NamedTuple):
    """What an operator should look at, as the first sentence of the page."""

    severity: str
    sentence: str


@screen.page("/system")
async def system(view: View) -> Page:
    store = view.app.store
    status = await view.run(store.maintenance.database())
    leaders = await view.run(store.maintenance.leaders())
    problems = await view.run(store.maintenance.vacuum_problems())
    tables = status.tables if status else []
    concerns = [SystemConcern("critical", f"{problem.detail}: {problem.hint}") for problem in problems]
    if status is not None:
        concerns += _concerns(view, status)
    return view.page(
        "system/system.html",
        "System",
        topics=("clock",),
        **_frame(view),
        status=status,
        concerns=sorted(concerns),
        pool=await store.connections(),
        leaders=Listing(columns=_LEADERS, rows=leaders, name="leaders"),
        listing=Listing(columns=_TABLES, rows=tables, name="tables"),
        largest=Listing(columns=_TABLES, rows=tables[:LARGEST]),
        others=Listing(columns=_TABLES, rows=tables[LARGEST:]),
        partitions=Listing(columns=_PARTITIONS, rows=status.partitions if status else (), name="partitions"),
        transactions=Listing(columns=_TRANSACTIONS, rows=status.transactions if status else (), name="transactions"),
        release=version("tarry"),
        broker=view.dashboard.broker,
        commands=Commands(
            curl=commands.curl(f"{view.api().removesuffix('/v1/')}/readyz"),
            cli=commands.cli("doctor"),
            python=commands.python("print(app.store.run(app.store.maintenance.database()))"),
        ),
    )


@screen.page("/system/checks", Action.ADMIN, all_queues=True)
async def checks(view: View) -> Page:
    """Not refreshed: the checks open connections of their own."""
    dsn = view.app.dsn
    findings, migrations = ([], []) if dsn is None else await asyncio.to_thread(_examined, dsn)
    failed = sum(not finding.ok for finding in findings)
    warned = sum(bool(finding.warning) for finding in findings)
    return view.page(
        "system/checks.html",
        "Checks",
        **_frame(view),
        listing=Listing(columns=_FINDINGS, rows=findings, name="checks"),
        migrations=Listing(columns=_MIGRATIONS, rows=migrations, name="migrations"),
        verdict=f"{failed} of {len(findings)} checks failed"
        if failed
        else f"No check failed; {warned} warned"
        if warned
        else "All checks passed",
        tone="critical" if failed else "warning" if warned else "good",
        commands=Commands(cli=commands.cli("doctor", "-o", "json")),
    )


@screen.page("/system/settings", Action.ADMIN, all_queues=True)
async def settings(view: View) -> Page:
    groups = (
        ("Broker", view.dashboard.broker.settings),
        ("Store", view.app.store.settings),
        ("Dashboard", view.dashboard.settings),
    )
    rows = [row for name, value in groups for row in setting_rows(name, value)]
    if view.app.dsn is not None:
        rows.insert(0, Setting("Database", "dsn", admin.described(view.app.dsn), is_default=False))
    columns = (
        Column("group", "Part", hide_small=True),
        Column("name", "Setting", "code"),
        Column("value", "Value", "code"),
        Column("is_default", "Default", value=lambda row: "yes" if row.is_default else "changed", hide_small=True),
    )
    return view.page(
        "system/settings.html",
        "Settings",
        **_frame(view),
        listing=Listing(columns=columns, rows=rows, name="settings"),
        commands=Commands(cli=commands.cli("serve", "--help")),
    )


@screen.page("/system/audit", Action.ADMIN, all_queues=True)
async def audit(view: View) -> Page:
    actor, action = view.query.get("actor", "").strip(), view.query.get("action", "").strip()
    rows = await view.run(
        view.app.store.security.audits(
            limit=view.limit + 1,
            before=whole(view.query.get("after", "")),
            actor=actor[:100],
            action=action[:100],
        )
    )
    page = [_redacted(view, row) for row in rows[: view.limit]]
    return view.page(
        "system/audit.html",
        "Audit log",
        **_frame(view),
        listing=Listing(
            columns=_AUDIT, rows=page, next=str(page[-1].id) if len(rows) > len(page) else None, name="audit"
        ),
        actor=actor,
        action=action,
        searched=AUDITS_SEARCHED,
        detail=_detail,
        commands=Commands(
            curl=commands.curl(view.api("audit"), query={"limit": "100"}),
            python=commands.python(
                "for row in app.store.run(app.store.security.audits(limit=100)):",
                "    print(row.at, row.actor, row.action)",
            ),
        ),
    )


def _frame(view: View) -> dict[str, Any]:
    here = view.request.scope["route"].path_format.rsplit(".", 1)[0]
    return {"tabs": [(to, label) for to, label, action in TABS if view.may(action)], "here": here}


def _concerns(view: View, status: DatabaseStatus) -> Iterator[SystemConcern]:
    share = status.connections / max(1, status.most_connections)
    if share > 0.8:
        yield SystemConcern(
            "warning", f"{status.connections} of {status.most_connections} connections of the server are in use"
        )
    if status.notify_share > NOTIFY_LIMIT:
        text = f"the queue of notifications is {status.notify_share:.0%} full: a session that listens is stuck"
        yield SystemConcern("critical", text)
    if status.frozen_age > FROZEN_LIMIT:
        text = f"the oldest row is {status.frozen_age:,} transactions old, and autovacuum does not freeze it"
        yield SystemConcern("critical", text)
    yield from (
        SystemConcern("warning", f"autovacuum is off for the table {table.name}")
        for table in status.tables
        if not table.autovacuum
    )
    if any(partition.day is None and partition.rows > 0 for partition in status.partitions):
        text = "the journal's overflow has events: their day had no partition when they were written"
        yield SystemConcern("warning", text)
    ahead = [p.day for p in status.partitions if p.day is not None and p.day > view.now.date()]
    if not ahead:
        text = "the journal has no partition for tomorrow: run tarry sweeper, or tarry db migrate"
        yield SystemConcern("warning", text)


def _examined(dsn: str) -> tuple[list[admin.CheckResult], list[admin.MigrationStatus]]:
    findings = admin.diagnose(dsn)
    if any(finding.check == "connection" and not finding.ok for finding in findings):
        return findings, []
    with admin.connection(dsn) as conn:
        return findings, admin.statuses(conn)


class Setting(NamedTuple):
    group: str
    name: str
    value: str
    is_default: bool


def setting_rows(group: str, chosen: Any, default: Any = None, within: str = "") -> Iterator[Setting]:
    """Those of a setting that has its own, such as `queue_defaults.lease_for`, are `within` it."""
    default = default or type(chosen)()
    for each in fields(chosen):
        name, value, usual = f"{within}{each.name}", getattr(chosen, each.name), getattr(default, each.name)
        if is_dataclass(value):
            yield from setting_rows(group, value, usual, f"{name}.")
        else:
            yield Setting(group, name, _shown(name, value), value == usual)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if any(word in name for word in _SECRET):
        return admin.HIDDEN
    if isinstance(value, timedelta):
        return roughly(value)
    if callable(value):
        return "set"
    data = data_of(value)
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _redacted(view: View, row: Audited) -> Audited:
    return replace(row, detail=view.redaction.value(data_of(row.detail)))


def _detail(value: Any) -> str:
    """A detail in one line, cut for the table; JSON and CSV have all of it."""
    text = msgspec.json.encode(data_of(value)).decode() if value else ""
    return f"{text[:200]}…" if len(text) > 200 else text
