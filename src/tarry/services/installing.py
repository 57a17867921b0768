"""Installation of schedules, shared by the blocking and the async `Cron`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from tarry.core.cron import CronMessage, ScheduleState, check_hash, check_prefix
from tarry.core.errors import InvalidInput, Refused
from tarry.core.schedules import Schedule
from tarry.handles import cron_asks
from tarry.handles.asking import Ask, question
from tarry.handles.cron_asks import Owned
from tarry.handles.elapsed import elapsed_s
from tarry.handles.schedule_specs import Options, planned, spec_of, ticks_spec
from tarry.services.scheduler import Duty, Generator

Generate = Callable[[datetime], Iterable[CronMessage]]


class Given(Options, total=False):
    """Options of a schedule besides its name, its times and its queue."""

    payload: Any
    """A value, or a function of the tick."""
    conn: Any


class Installed:
    """An installed schedule. `close` ends this process's work for it; planned messages stay."""

    def __init__(self, prefix: str, state: ScheduleState | None, close: Callable[[str], None]) -> None:
        self.prefix = prefix
        self.state = state
        self._close = close

    def close(self) -> None:
        self._close(self.prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Installing:
    """The verbs as asks. `plans` wakes the scheduler of this program; None while none runs."""

    def __init__(self, duty: Duty, payload_limit: int, example: str) -> None:
        self.plans: Callable[[], None] | None = None
        self._duty = duty
        self._payload_limit = payload_limit
        self._example = example

    def schedule(self, prefix: str, schedule: Schedule, queue: str, given: Given) -> Ask[Installed]:
        payload, conn = given.pop("payload", None), given.pop("conn", None)
        spec, payload_of = spec_of(
            prefix, schedule, queue=queue, payload=payload, options=given, payload_limit=self._payload_limit
        )
        if payload_of is not None:
            self._require_planning(prefix)
        state = yield from cron_asks.install(spec, payload_of, conn)
        if payload_of is not None:
            self._duty.owned[prefix] = Owned(state.generation, payload_of)
        return self._installed(prefix, state)

    def ticks(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any
    ) -> Ask[None]:
        spec = ticks_spec(config_hash, prefix, queue)
        yield from cron_asks.install_ticks(spec, planned(messages, self._payload_limit), conn)

    def uninstall(self, config_hash: str, prefix: str, *, conn: Any) -> Ask[None]:
        yield from cron_asks.uninstall(check_prefix(prefix), check_hash(config_hash), conn)

    def generator(
        self, config_hash: str, prefix: str, every: timedelta, generate: Generate, *, queue: str
    ) -> Ask[Installed]:
        if not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be longer than nothing, not {every!r:.80}")
        self._require_planning(prefix)
        spec = ticks_spec(config_hash, prefix, queue)
        now = yield from question(lambda store: store.now())
        yield from cron_asks.install_ticks(spec, planned(generate(now), self._payload_limit), None)
        every_s = every.total_seconds()
        self._duty.generators[prefix] = Generator(spec, every_s, generate, elapsed_s() + every_s, installed=True)
        return self._installed(prefix, None)

    def _installed(self, prefix: str, state: ScheduleState | None) -> Installed:
        if self.plans is not None:
            self.plans()
        return Installed(prefix, state, self._forgotten)

    def _forgotten(self, prefix: str) -> None:
        self._duty.owned.pop(prefix, None)
        self._duty.generators.pop(prefix, None)

    def _require_planning(self, prefix: str) -> None:
        if self.plans is None:
            problem = f"schedule {prefix!r} needs this program to plan it, and it is not planning"
            raise Refused(problem, hint=self._example)
