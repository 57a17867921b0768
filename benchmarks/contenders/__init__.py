"""Who takes part. A peer is one file beside these and one line in `REGISTRY`; `protocol` says what it has to do."""

from __future__ import annotations

from benchmarks.contenders.originals import Originals
from benchmarks.contenders.protocol import Contender
from benchmarks.contenders.tarry_queue import TarryQueue
from tarry.core.events import JournalLevel

TARRY = "tarry"
TARRY_BARE = "tarry (journal off)"
ORIGINALS = "originals' SQL"

# The names that the targets compare with, once they are in the registry.
PGMQ = "pgmq"
PGQUE = "PgQue"
GRAPHILE = "graphile-worker"

REGISTRY: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        TarryQueue(name=TARRY, journal=JournalLevel.EVENTS),
        TarryQueue(name=TARRY_BARE, journal=JournalLevel.OFF),
        Originals(name=ORIGINALS),
        # Peers go here: pgmq, PgQue, graphile-worker, …
    )
}
