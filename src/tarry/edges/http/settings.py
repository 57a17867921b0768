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
    queues_per_key: int = 1_000
    """A key without `admin` creates no more queues once it is for so many, whichever key created those."""
    connections: int = 10_000
    """Of a broker's own server: fewer where the limit of descriptors of its process is lower."""
    head_for: timedelta = timedelta(seconds=10)
    """How long a client may take to send the head of a request."""
    write_for: timedelta = timedelta(seconds=30)
    """How long a client may take to read an answer, and a second more for each 64 KiB of it."""
    unread_bytes: int = 256 * 1024 * 1024
    """Bytes of responses that clients have not read yet, of all connections: beyond it those with the most are closed."""
    grace: timedelta = timedelta(seconds=10)
    """How long answers under way may take to finish when the broker's own server stops."""
    body_limit: int = 1024 * 1024
    body_for: timedelta = timedelta(seconds=30)
    """How long a client may take to send its request."""
    import_limit: int = 10_000_000
    """Lines of one import. The broker keeps a byte for each until it answers."""
    batch_limit: int = 1_000
    page_limit: int = 1_000
    page_bytes: int = 8 * 1024 * 1024
    """Payloads of one page of messages, dead letters or events, and of one poll: it ends early when they reach this."""
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
        for name in ("head_for", "write_for", "body_for", "ping_every"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)}")
        if self.requests_per_s is not None and self.requests_per_s <= 0:
            raise InvalidInput("requests_per_s must be more than nothing, or None for no limit")
