"""Rounds: the steps in which the derived tables of a lake follow its archive."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The events visible in `snapshot` but not in the previous round's, from batches up to `position` in the lake's chain.
    A round is planned before anything is written: repeating it gives the same events and number.
    """

    lake: str
    number: int
    position: int
    snapshot: str
    system_id: str


class QueueLevel(NamedTuple):
    """Live and dead messages of a queue after the last round."""

    queue_id: int
    depth: int
    dead: int
