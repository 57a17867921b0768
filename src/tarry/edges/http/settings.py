"""Settings of a broker."""

from dataclasses import dataclass, field, fields
from datetime import timedelta

from tarry.core.limits import check_positive
from tarry.core.settings import QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    anonymous: bool = False
    """Allow clients on this machine everything until the first key is created. Not for use behind a proxy."""
    queue_defaults: QueueSettings | None = field(default_factory=QueueSettings)
    """Settings for a queue created by its first offer or poll. None: queues are only created explicitly."""
    queues_per_key: int = 1_000
    """A key without `admin` cannot create queues once it may produce to this many, whichever key created them."""
    connections: int = 10_000
    """Connections of a broker's own server; fewer if the descriptor limit of its process is lower."""
    head_for: timedelta = timedelta(seconds=10)
    """How long a client may take to send the head of a request."""
    write_for: timedelta = timedelta(seconds=30)
    """How long a client may take to read a response, plus one second per 64 KiB."""
    unread_bytes: int = 256 * 1024 * 1024
    """Limit on unread response bytes over all connections. Above it, the connections with the most are closed."""
    grace: timedelta = timedelta(seconds=10)
    """How long requests in progress may take when the broker's own server stops."""
    body_limit: int = 1024 * 1024
    body_for: timedelta = timedelta(seconds=30)
    """How long a client may take to send the body of a request."""
    import_limit: int = 10_000_000
    """Lines per import. The broker keeps one byte per line until it responds."""
    page_bytes: int = 8 * 1024 * 1024
    """Payload bytes at which a page of messages, dead letters or events, or a poll, stops early; for a page of the audit, all
    of its bytes."""
    wait_limit: timedelta = timedelta(seconds=60)
    keys_cached_for: timedelta = timedelta(seconds=2)
    """How long a broker other than the one that revoked a key may still accept it."""
    requests_per_s: float | None = None
    """Limit for each key. None: no limit."""
    polls_per_key: int = 5_000
    """Concurrent long polls."""
    streams_per_key: int = 1_000
    streams: int = 5_000
    """Live streams of all keys together."""
    stream_buffer: int = 1_000
    """Events that a live stream may lag behind before it is disconnected."""
    replay_limit: int = 20_000
    """Events replayed to a reconnecting client. If more have happened, over all queues, it gets a gap event."""
    ping_every: timedelta = timedelta(seconds=15)

    def __post_init__(self) -> None:
        counts = [field_.name for field_ in fields(self) if type(getattr(self, field_.name)) is int]
        check_positive(self, *counts, "head_for", "write_for", "body_for", "ping_every", "requests_per_s")
