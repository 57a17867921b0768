"""The SQL of DelayedQueue, over the driver that Tarry uses. It has no workers."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.originals import Originals
from benchmarks.peers.adapters.agent import Unsupported, Watch, body


class Adapter:
    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        self._contender, self._dsn, self._filled = Originals(name="originals"), dsn, 0
        if create:
            self._contender.create(dsn, durable=True)
        self._session = self._contender.open(dsn, durable=True)
        self._session.acquire_ms = int(lease_s * 1_000)

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        if delay_s:
            self._contender.fill(self._dsn, most or 0, due_in_s=delay_s, first=self._filled + 1)
            self._filled += most or 0
            return {"n": most}
        watch = Watch(seconds, most)
        while watch.goes_on:
            if batch == 1:
                self._session.offer_one(body(watch.n))
            else:
                self._session.offer_many([body(i) for i in range(watch.n, watch.n + batch)])
            watch.step(batch)
        return watch.result()

    def consume(self, *, seconds: float, batch: int = 1, most: int | None = None) -> dict[str, Any]:
        watch = Watch(seconds, most)
        overrun = 0
        while watch.goes_on:
            if batch == 1:
                held = self._session.poll_one()
                if held is None:
                    break
                self._session.ack_one(held)
                watch.step(1)
            else:
                held, n = self._session.poll_many(batch)
                if not n:
                    break
                overrun += max(0, n - batch)
                self._session.ack_many(held)
                watch.step(min(n, batch))
        return {**watch.result(), **({"note": f"{overrun} leased beyond the limit and lost"} if overrun else {})}

    def poll_only(self, *, n: int) -> dict[str, Any]:
        held = 0
        while held < n and (some := self._session.poll_many(min(1_000, n - held))[1]):
            held += some
        return {"n": held}

    def work(self, **_: Any) -> None:
        raise Unsupported("it has no workers")

    def close(self) -> None:
        self._session.close()
