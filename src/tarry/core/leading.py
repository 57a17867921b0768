"""One leader at a time, and how a leader of yesterday is told from the one of today."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Leadership(NamedTuple):
    """Who leads, and under which number. The number grows with every change of hands: what a leader writes names it, and
    the database refuses what names an old one. So a leader that slept through the end of its lease changes nothing."""

    name: str
    holder: str
    fence: int
    lease_until: datetime
