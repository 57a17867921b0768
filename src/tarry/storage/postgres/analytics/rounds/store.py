"""Rounds of each lake: the last completed one, the planned one, and the levels of queues after the completed one."""

from collections.abc import Sequence
from dataclasses import asdict

from tarry.core.analytics.rounds import QueueLevel, Round
from tarry.core.errors import InvalidState
from tarry.core.journal.events import EventKind
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.statement import Row, each, made, value_or_none


class PostgresRounds(Role):
    def head(self, lake: str) -> Round | None:
        """The last completed round."""
        return self._rounds(lake)[0]

    def planned(self, lake: str) -> Round | None:
        """The round that a run has planned and not completed."""
        return self._rounds(lake)[1]

    def plan(self, planned: Round) -> None:
        self._database.write("analytics/rounds/plan", **asdict(planned))

    def finish(self, planned: Round, levels: Sequence[QueueLevel]) -> None:
        """Complete a round and set the levels of these queues, in one transaction. Raises if another run has done it."""
        columns = {
            "queue_ids": [level.queue_id for level in levels],
            "depths": [level.depth for level in levels],
            "deads": [level.dead for level in levels],
        }
        number = self._database.write(
            "analytics/rounds/finish", value_or_none, lake=planned.lake, number=planned.number, **columns
        )
        if number is None:
            raise InvalidState(
                f"another run has completed round {planned.number} of the lake {planned.lake} meanwhile; nothing is lost, "
                "and it continues from there",
                hint="run one pipeline at a time on a lake",
            )

    def levels(self, lake: str) -> list[QueueLevel]:
        return self._database.fetch("analytics/rounds/levels", each(made(QueueLevel)), lake=lake)

    def unknown_kinds(self) -> list[str]:
        """Kinds of events that only a newer version of Tarry writes."""
        known = [kind.value for kind in EventKind]
        return [row.kind for row in self._database.fetch("analytics/rounds/unknown_kinds", list[Row], known=known)]

    def forget(self, lake: str) -> None:
        """Let the next round begin with the first event: it replaces the derived tables."""
        self._database.write("analytics/rounds/forget", lake=lake)

    def _rounds(self, lake: str) -> tuple[Round | None, Round | None]:
        def decode(rows: list[Row]) -> tuple[Round | None, Round | None]:
            by_state: dict[bool, Round] = {}
            for row in rows:
                values = row._asdict()
                is_done: bool = values.pop("is_done")
                by_state[is_done] = Round(**values)
            return by_state.get(True), by_state.get(False)

        return self._database.fetch("analytics/rounds/rounds", decode, lake=lake)
