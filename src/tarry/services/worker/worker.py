"""A worker: handlers by queue and type, with their options. `run` connects it to an app and its database."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar, cast, overload

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry
from tarry.core.rates import Rate
from tarry.services.loop import Loop
from tarry.services.worker.handlers import (
    DeadLetterHandler,
    Handler,
    QueueOptions,
    Source,
    dead_letter_handler_for,
    handler_for,
    sources_of,
)
from tarry.services.worker.noted_limits import note_limits
from tarry.services.worker.results import Handled, Hooks, Totals
from tarry.services.worker.runtime import Connected, Runtime
from tarry.services.worker.signatures import AnyDelivery, Register, TakesApp, TakesBoth, TakesResources

F = TypeVar("F", bound=Callable[..., Any])
Middleware = TypeVar("Middleware", bound=Callable[[AnyDelivery], AbstractContextManager[Any]])
OnStarted = TypeVar("OnStarted", bound=Callable[[AnyDelivery], None])
OnDead = TypeVar(
    "OnDead",
    bound=Callable[[Handled], Coroutine[Any, Any, None] | None] | TakesApp[Any] | TakesResources[Any] | TakesBoth[Any],
)
H = TypeVar("H", Handler, DeadLetterHandler)
OnFinished = TypeVar("OnFinished", bound=Callable[[Handled], None])
MOST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of one worker process."""

    concurrency: int = 10
    """Concurrent handlers, over all queues."""
    grace: timedelta = timedelta(seconds=30)
    """How long running handlers may continue after a stop request."""
    queues: tuple[str, ...] | None = None
    """Only these queues; None: all with a handler."""
    processes: int = 1
    """Number of processes of this worker: rates are divided among them."""
    until_empty: bool = False
    """Stop when nothing is due: for tests, and for runs started by another scheduler."""
    release: str | None = None
    """Version or commit of your program: shown with the worker, and with the dead letters of its attempts."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "processes"):
            if not 1 <= limits.check_count(value := getattr(self, name), name) <= MOST:
                raise InvalidInput(f"{name} must be between 1 and {MOST:,}, not {value}")
        limits.check_delay(self.grace, "grace")
        if self.release is not None:
            limits.check_text(self.release, "a release", limits.TYPE_LENGTH)
        if self.queues == ():
            raise InvalidInput(
                "queues names no queue, so there would be nothing to do", hint="name some, or omit it for all"
            )


class Worker:
    """Handlers by queue and type. Run it with `tarry worker module:worker`, or `await worker.run(app)`."""

    def __init__(self, *, resources: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None) -> None:
        """`resources`: returns an async context manager for the app (`tarry.AsyncApp`), entered before the first message and
        exited after the last; handlers with a parameter `*, resources` get the value it yields."""
        self._resources = resources
        self._handlers: dict[tuple[str, str | None], Handler] = {}
        self._on_dead: dict[str, DeadLetterHandler] = {}
        self._options: dict[str, QueueOptions] = {}
        self.hooks = Hooks()

    def handler(
        self,
        queue: str,
        *,
        type: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        bury_on: type[Exception] | tuple[type[Exception], ...] = (),
        concurrency: int | None = None,
        prefetch: int | None = None,
        lease_for: timedelta | None = None,
        rate: Rate | None = None,
    ) -> Register:
        """Register the decorated function: `(payload)` or `(payload, delivery)`, sync or async, payload annotated. By keyword
        (`*, app, resources`) it gets the app, a `tarry.App` for a sync handler, and the worker's resources.

        `type`: only messages of this type; without it, all types without their own handler. `retry`, `timeout` and
        `bury_on` (exceptions that a retry cannot fix) apply to this handler; `concurrency`, `prefetch`, `lease_for`
        and `rate` to the whole queue, so pass them once."""
        if callable(queue):
            raise InvalidInput("a handler needs the name of its queue", hint='@worker.handler("orders")')
        kinds = bury_on if isinstance(bury_on, tuple) else (bury_on,)
        options = QueueOptions(concurrency=concurrency, prefetch=prefetch, lease_for=lease_for, rate=rate)

        def register(call: Callable[..., Any]) -> Any:
            made = handler_for(call, queue, type, retry=retry, timeout=timeout, bury_on=kinds)
            self._check_resources(made)
            handles = (made.queue, made.type)
            if handles in self._handlers:
                what = f"queue {queue!r}" if type is None else f"type {type!r} of queue {queue!r}"
                raise InvalidInput(
                    f"{what} has a handler already: {self._handlers[handles].name}",
                    hint="give each handler its own type: @worker.handler(queue, type=…)",
                )
            self._options[queue] = self._options.get(queue, QueueOptions()).joined(options, queue)
            self._handlers[handles] = made
            return call

        return cast("Register", register)

    def on_dead(self, queue: str) -> Callable[[OnDead], OnDead]:
        """Register the decorated function, sync or async, for messages of the queue that become dead letters in this worker.
        It gets their `Handled`, and by keyword `app` and `resources`. It is called at most once, after the message has become
        a dead letter; its exceptions are logged. It is not called for messages that crash their worker, or that a handler
        settles by a verb of the delivery."""

        def register(call: OnDead) -> OnDead:
            made = dead_letter_handler_for(call)
            self._check_resources(made)
            if queue in self._on_dead:
                raise InvalidInput(f"dead letters of {queue!r} have a handler already: {self._on_dead[queue].name}")
            self._on_dead[limits.check_queue_name(queue)] = made
            return call

        return register

    def _check_resources(self, made: Handler | DeadLetterHandler) -> None:
        if "resources" in made.wants and self._resources is None:
            raise InvalidInput(
                f"handler {made.name} takes resources, but this worker has none", hint="tarry.Worker(resources=…)"
            )

    @overload
    def on(self, event: Literal["started"]) -> Callable[[OnStarted], OnStarted]: ...
    @overload
    def on(self, event: Literal["finished"]) -> Callable[[OnFinished], OnFinished]: ...
    def on(self, event: Literal["started", "finished"]) -> Callable[[F], F]:
        """Call the decorated function when a handler has `started` (with the delivery) or `finished` (with a `Handled`)."""

        def register(call: F) -> F:
            self.hooks.add(event, call)
            return call

        return register

    def middleware(self, around: Middleware) -> Middleware:
        """Register a function that returns a context manager for a delivery, entered around every handler call."""
        self.hooks.middleware.append(around)
        return around

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(queue for queue, _ in self._handlers))

    def sources(self, settings: WorkerSettings) -> list[Source]:
        """The sources to poll, with their handlers."""
        if not self._handlers:
            raise InvalidInput("this worker has no handlers", hint='register one: @worker.handler("queue")')
        if without := [queue for queue in self._on_dead if queue not in self.queues]:
            raise InvalidInput(
                f"on_dead is registered for {', '.join(without)}, which no handler of this worker is for",
                hint=f"it has: {', '.join(self.queues)}",
            )
        queues = self.queues if settings.queues is None else settings.queues
        if unknown := [queue for queue in queues if queue not in self.queues]:
            raise InvalidInput(
                f"no handler of this worker is for {', '.join(unknown)}", hint=f"it has: {', '.join(self.queues)}"
            )
        chosen = [handler for handler in self._handlers.values() if handler.queue in queues]
        shared = {
            queue: dataclasses.replace(options, rate=options.rate and options.rate.shared_by(settings.processes))
            for queue, options in self._options.items()
        }
        return sources_of(chosen, shared)

    @asynccontextmanager
    async def opened(
        self, app: Connected, settings: WorkerSettings, resources: Any = None
    ) -> AsyncGenerator[list[Source]]:
        """The sources, with handlers bound to the app and the resources, which are closed at the end. `resources`: replaces
        those of the worker."""
        sources = self.sources(settings)
        handlers = [handler for source in sources for handler in source.handlers.values()]
        async with AsyncExitStack() as stack:
            blocking: Any = None
            functions = [*handlers, *self._on_dead.values()]
            if any("app" in function.wants and not function.is_async for function in functions):
                blocking = await asyncio.to_thread(app.blocking)
                stack.push_async_callback(asyncio.to_thread, blocking.close)
            if resources is None and self._resources is not None:
                try:
                    resources = await stack.enter_async_context(self._resources(app))
                except Exception as error:
                    error.add_note("raised by the resources of the worker, before its first message")
                    raise

            def bound(function: H) -> H:
                given = {"app": app if function.is_async else blocking, "resources": resources}
                given = {name: value for name, value in given.items() if name in function.wants}
                return dataclasses.replace(function, call=partial(function.call, **given)) if given else function

            on_dead = {queue: bound(made) for queue, made in self._on_dead.items()}

            def complete(handler: Handler) -> Handler:
                return dataclasses.replace(bound(handler), on_dead=on_dead.get(handler.queue))

            yield [
                dataclasses.replace(source, handlers={type: complete(made) for type, made in source.handlers.items()})
                for source in sources
            ]

    async def run(
        self,
        app: Connected,
        settings: WorkerSettings = WorkerSettings(),
        *,
        stop: asyncio.Event | None = None,
        background: Sequence[Loop] = (),
    ) -> Totals:
        """Work until `stop` is set, then shut down gracefully. A cancelled run releases all messages without a grace period.

        `background`: loops that run alongside the handlers."""
        async with self.opened(app, settings) as sources:
            runtime = Runtime(app, sources, self.hooks, settings.concurrency, background, release=settings.release)
            grace_s = settings.grace.total_seconds()
            noting = asyncio.create_task(note_limits(app, sources), name="tarry-note-limits")
            try:
                return await runtime.run(stop or asyncio.Event(), grace_s, until_empty=settings.until_empty)
            finally:
                noting.cancel()
                await asyncio.wait({noting})
