"""Leadership of periodic work, with a fencing token against former leaders."""

from datetime import datetime
from typing import NamedTuple


class Leadership(NamedTuple):
    """A held leadership. The fencing token `fence` grows with every change of the leader; every write of a leader carries
    it, and the database rejects writes with an old one. So a leader whose lease has expired changes nothing."""

    name: str
    holder: str
    fence: int
    lease_until: datetime
