"""Leadership of periodic work, with a fencing token against former leaders."""

from datetime import datetime
from typing import NamedTuple


class Leadership(NamedTuple):
    """A held leadership. The fencing token `fence` increases with every new leader. Every write of a leader carries it, and
    the database rejects outdated tokens, so a leader whose lease has expired changes nothing."""

    name: str
    holder: str
    fence: int
    lease_until: datetime
