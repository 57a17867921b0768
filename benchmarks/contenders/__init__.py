"""The contenders of `make bench`. Other queues, each through its own API, are in `benchmarks.peers`."""

from __future__ import annotations

from benchmarks.contenders.originals import Originals
from benchmarks.contenders.protocol import Contender
from benchmarks.contenders.prototype import Prototype
from benchmarks.contenders.tarry_queue import TarryQueue
from tarry.core.journal.events import JournalLevel

TARRY = "tarry"
TARRY_BARE = "tarry (journal off)"
ORIGINALS = "originals' SQL"
BEFORE = "tarry, earlier commit"
PROTOTYPE = Prototype(name="prototype, journal on")
"""Only in batches, for P7."""

REGISTRY: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        TarryQueue(name=TARRY, journal=JournalLevel.EVENTS),
        TarryQueue(name=TARRY_BARE, journal=JournalLevel.OFF),
        Originals(name=ORIGINALS),
    )
}
