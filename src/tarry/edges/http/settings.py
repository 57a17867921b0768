"""How a broker behaves: frozen, valid at birth."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta

from tarry.core.errors import InvalidInput
from tarry.core.settings import QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    anonymous: bool = False
    """Whether clients on this machine may do everything until the first key is made. Not for use behind a proxy."""
    queue_defaults: QueueSettings | None = field(default_factory=QueueSettings.for_http)
    """What a queue gets that comes into being because somebody offers to it or polls it. None: it does not."""
    body_limit: int = 1024 * 1024
    body_for: timedelta = timedelta(seconds=30)
    """How long a client may take to send its request."""
    import_limit: int = 10_000_000
    """Lines of one import. The broker keeps a byte for each until it answers."""
    batch_limit: int = 1_000
    page_limit: int = 1_000
    wait_limit: timedelta = timedelta(seconds=60)
    keys_cached_for: timedelta = timedelta(seconds=2)
    """For so long a revoked key may still be taken by a broker other than the one that revoked it."""
    requests_per_s: float | None = None
    """For each key. None: as many as it likes."""
    polls_per_key: int = 5_000
    """Long polls that may wait at once."""
    streams_per_key: int = 1_000
    streams: int = 5_000
    """Live streams of all keys together."""
    stream_buffer: int = 1_000
    """Events that a live stream may be behind before it is cut off."""
    replay_limit: int = 20_000
    """Events after the position that a client comes back with. Where more happened, in all queues together, it is told of a
    gap."""
    ping_every: timedelta = timedelta(seconds=15)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is int and value < 1:
                raise InvalidInput(f"{one.name} must be at least 1, got {value}")
        if self.ping_every <= timedelta(0):
            raise InvalidInput("ping_every must be longer than nothing")
        if self.requests_per_s is not None and self.requests_per_s <= 0:
            raise InvalidInput("requests_per_s must be more than nothing, or None for no limit")
