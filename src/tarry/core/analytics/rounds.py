"""Rounds: the steps in which the derived tables of a lake follow its archive."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Everything that is visible in `snapshot` and was not in that of the round before, from batches up to `position` in the
    lake's chain. It is planned before anything is written, so that a repeated round has the same events and number.
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
