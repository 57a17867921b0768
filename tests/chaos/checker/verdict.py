"""The counts of a check. Every count of `BROKEN` must be zero; `REPORTS` describe the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

BROKEN: dict[str, tuple[str, str]] = {
    "lost": ("S1", "an accepted message was never delivered, and nothing explains its end"),
    "not_empty": ("S1", "a message cannot be delivered at the end"),
    "unexpected": ("S2, S16", "a payload was delivered that was never offered to this queue and key"),
    "overlapping": ("S3", "two leases of one key were valid at the same time"),
    "token_reused": ("S4", "a lease token was issued twice"),
    "version_back": ("S4", "a message that was offered later has a lower version"),
    "stale_settle_won": ("S5", "a token settled after another client had leased the message"),
    "replaced_settle_won": ("S5", "a token of an older version settled the newer one"),
    "late_touch_won": ("S5", "a touch was granted after the end of the lease"),
    "double_ack": ("S6", "a version was acked twice"),
    "delivered_after_ack": ("S6", "a version was delivered after its ack was answered"),
    "stored_twice": ("S7", "an offer that was sent once, or under an idempotency key, was stored twice"),
    "not_linearizable": ("S8", "the answers about one key fit no order that real time allows"),
    "early": ("S9", "a delivery before its due time, by the clock of the database"),
    "attempts_wrong": ("S10", "a lease did not count as an attempt, or there were more than allowed"),
    "died_twice": ("S10", "a version is dead more than once"),
    "batch_wrong": ("S11", "a batch returned another number of items, or a poll gave more than its limit"),
    "journal_wrong": ("S12", "the events of a key do not add up to the live and the dead table"),
    "effect_wrong": ("S12", "an effect in the transaction of its ack happened twice, or not at all"),
    "tick_missing": ("S13", "a tick of a schedule made no message"),
    "tick_doubled": ("S13", "a tick of a schedule made two messages"),
    "tick_stale": ("S14", "a tick of a configuration that had been replaced was delivered"),
    "delivered_while_paused": ("pause", "a paused queue delivered"),
    "event_missing": ("S18", "a reader of the journal was not given an event, and no gap was reported"),
    "event_doubled": ("S18", "a reader of the journal was given an event twice"),
    "event_unknown": ("S18", "a reader was given an event that is not in the journal, and no gap was reported"),
    "errors": ("", "an error that is neither a refusal nor an outage"),
}
"""Count → promise, and what it means when it is not zero. S15 and S17 are not properties of a history: see chaos.md."""

REPORTS = {
    "operations": "operations (calls of the public API)",
    "messages": "messages in these calls",
    "unknown": "operations without a reply",
    "refused": "operations refused with nothing changed",
    "undone": "operations in transactions that were rolled back",
    "offers": "messages offered",
    "leases": "leases",
    "redelivered": "of them redeliveries",
    "settles_refused": "settles refused, because the lease was lost",
    "keys_linearized": "keys whose answers were searched for a sequential order",
    "keys_not_linearized": "keys left out of that search (too many unanswered calls, or an asynchronous failover)",
    "ticks": "ticks of schedules delivered",
    "events": "events read from the journal by followers",
    "gaps": "gaps reported to followers",
    "forgotten": "offers accepted just before an asynchronous failover and gone after it",
}


@dataclass(slots=True)
class Verdict:
    counts: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, Any] = field(default_factory=dict)
    """The first of each, to find out why."""

    def count(self, name: str, example: Any) -> None:
        assert name in BROKEN, name
        self.counts[name] += 1
        self.examples.setdefault(name, example)

    def report(self, name: str, n: int = 1) -> None:
        assert name in REPORTS, name
        self.counts[name] += n

    @property
    def broken(self) -> dict[str, int]:
        return {name: self.counts[name] for name in BROKEN if self.counts[name]}

    def table(self) -> str:
        lines = ["| | |", "|---|---|"]
        lines += [f"| {text} | {self.counts[name]:,} |" for name, text in REPORTS.items()]
        lines += ["", "| broken promise | | times |", "|---|---|---|"]
        lines += [
            f"| {name.replace('_', ' ')} | {promise} | {self.counts[name]:,} |" for name, (promise, _) in BROKEN.items()
        ]
        return "\n".join(lines)

    def explained(self) -> str:
        """What to look at when a promise was broken."""
        return "\n".join(f"{name} × {self.counts[name]}: {self.examples[name]!r:.3000}" for name in self.broken)
