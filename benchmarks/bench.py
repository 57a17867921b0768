"""One run: the contenders, the server, and the rounds in which every contender gets a turn."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from benchmarks.contenders import ceilings
from benchmarks.contenders.protocol import Body, Contender, Session, Unavailable
from benchmarks.measure import Meter
from benchmarks.plan import Plan
from benchmarks.progress import Progress
from benchmarks.results import Results
from benchmarks.server import Server

Turn = Callable[[], None]


@dataclass(slots=True)
class Bench:
    plan: Plan
    server: Server
    meter: Meter
    contenders: Sequence[Contender]
    progress: Progress
    before: str = ""
    """The revision of the earlier commit."""
    results: Results = field(default_factory=Results)
    _created: set[str] = field(default_factory=set)
    _unavailable: dict[str, str] = field(default_factory=dict)
    _bodies_made: int = 0

    def database(self, contender: Contender, purpose: str = "main") -> str:
        """A database with this contender's tables; one per purpose, so that no scenario inherits another's rows."""
        # A run that judges nothing need not keep them apart.
        name = f"{contender.slug}_{purpose if self.plan.judges else 'main'}"
        dsn = self.server.database(name)
        if name not in self._created:
            contender.create(dsn, durable=self.plan.durable)
            self._created.add(name)
        return dsn

    def purposes(self, contender: Contender) -> list[str]:
        """Of the databases that this contender has got."""
        prefix = f"{contender.slug}_"
        return [name.removeprefix(prefix) for name in sorted(self._created) if name.startswith(prefix)]

    def ceiling_database(self) -> str:
        dsn = self.server.database(ceilings.SLUG)
        if ceilings.SLUG not in self._created:
            ceilings.create(dsn, durable=self.plan.durable)
            self._created.add(ceilings.SLUG)
        return dsn

    def bodies(self, n: int) -> list[Body]:
        """Payloads of about 80 bytes, all different."""
        first, self._bodies_made = self._bodies_made, self._bodies_made + n
        return [body(i) for i in range(first, first + n)]

    @contextmanager
    def sessions(
        self, measures: Sequence[str], purpose: str = "main", more: Sequence[Contender] = ()
    ) -> Generator[list[tuple[Contender, Session]]]:
        """The connected contenders, and `more` that take part in this only. Those that cannot are recorded with the reason
        under these measures."""
        with ExitStack() as stack:
            present: list[tuple[Contender, Session]] = []
            for contender in (*self.contenders, *more):
                try:
                    session = contender.open(self.database(contender, purpose), durable=self.plan.durable)
                except Unavailable as reason:
                    self.skip(measures, contender.name, reason)
                    continue
                stack.callback(session.close)
                present.append((contender, session))
            yield present

    def skip(self, measures: Sequence[str], name: str, reason: Unavailable) -> None:
        for measure in measures:
            self.results.skip(measure, name, str(reason))

    def rounds(self, title: str, turns: Sequence[tuple[str, Sequence[str], Turn]], rounds: int | None = None) -> None:
        """A B C, A B C, …: a temporary disturbance of the machine affects all. A turn is (contender, measures, work)."""
        waiting = list(turns)
        rounds = self.plan.rounds if rounds is None else rounds
        with self.progress.stage(title, rounds * len(waiting)) as step:
            for _ in range(rounds):
                for turn in list(waiting):
                    name, measures, work = turn
                    step(name)
                    try:
                        work()
                    except Unavailable as reason:
                        self.skip(measures, name, reason)
                        waiting.remove(turn)

    def clear(self, dsn: str, contender: Contender) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("truncate {}").format(table(contender)))

    def settle(self, dsn: str, contender: Contender) -> None:
        """Vacuum, as autovacuum would have done before so many messages exist."""
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("vacuum analyze {}").format(table(contender)))


def table(contender: Contender) -> sql.Identifier:
    return sql.Identifier(*contender.table.split("."))


def body(i: int) -> Body:
    return {"order": i, "customer": f"customer-{i % 1_000:04}", "total": "129.95", "currency": "EUR"}
