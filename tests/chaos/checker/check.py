"""All checks of a history."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.checker.cron import check_cron
from tests.chaos.checker.index import Index
from tests.chaos.checker.journal import Event, check_journal
from tests.chaos.checker.messages import check_messages
from tests.chaos.checker.register import check_registers
from tests.chaos.checker.verdict import Verdict
from tests.chaos.recording import History


def check(history: History, journal: Iterable[Event] | None = None) -> Verdict:
    """`journal`: all events at the end, sorted; without it, what was read from the journal is not checked."""
    verdict = Verdict()
    index = Index(history, verdict)
    check_messages(index, verdict)
    check_registers(index, verdict)
    check_cron(index, verdict)
    if journal is not None:
        check_journal(journal, history, verdict)
    return verdict
