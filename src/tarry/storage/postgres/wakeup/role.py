"""`WakeupRole` on PostgreSQL."""

from datetime import timedelta
from functools import partial

from tarry.core.clock import Clock
from tarry.core.settings import StoreSettings
from tarry.core.wakeup.wait_queue import WaitHint, WaitQueue
from tarry.storage.postgres.messages.live_heads import LiveHeads, ScanKey
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.wakeup.listener import Listener
from tarry.storage.postgres.wakeup.statements import wait


class PostgresWakeup(PostgresRole):
    def __init__(
        self,
        clock: Clock,
        settings: StoreSettings,
        wait_queue: WaitQueue,
        listener: Listener,
        live_heads: LiveHeads,
    ) -> None:
        super().__init__(clock, settings)
        self._live_heads = live_heads
        self.wait_queue = wait_queue
        self._listener = listener

    def announce(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> PostgresOperation[WaitHint]:
        listener, scan_every = self._listener.started(), self._settings.scan_every
        longest = max(scan_every, self._settings.listening_scan_every)
        probe, process = listener.probe(), listener.process

        def steps(own: bool) -> Op[WaitHint]:  # noqa: FBT001
            about = {"sleep_for": sleep_for, "scan_every": scan_every, "longest": longest}
            make = partial(wait, queue, type, self._now, process=process, probe=probe, **about)
            return self._live_heads.scan(ScanKey("wait", queue, type), make, own=own)

        return PostgresOperation(
            lambda own: in_known_queue(lambda: steps(own)), on_success=lambda: listener.sent(probe)
        )
