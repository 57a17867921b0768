"""Operations of several store calls, written once for blocking and async stores.

An ask is a generator: it yields a question, which is a function that calls one verb of a store, and is sent the result.
The verbs of both kinds of store have the same names, so the question is the same; only one of them has to be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from tarry.core.ports import AsyncStore, Store
from tarry.handles.aside import Aside

R = TypeVar("R")

Ask = Generator[Callable[[Any], Any], Any, R]


def question(verb: Callable[[Store], R]) -> Ask[R]:
    """`yield from` keeps the type that a bare `yield` would lose."""
    return (yield verb)


def answered(store: Store, ask: Ask[R]) -> R:
    try:
        verb = next(ask)
        while True:
            try:
                answer = verb(store)
            except Exception as error:
                verb = ask.throw(error)
            else:
                verb = ask.send(answer)
    except StopIteration as stop:
        return stop.value


async def answered_async(store: AsyncStore, ask: Ask[R]) -> R:
    try:
        verb = next(ask)
        while True:
            try:
                answer = await verb(store)
            except Exception as error:
                verb = ask.throw(error)
            else:
                verb = ask.send(answer)
    except StopIteration as stop:
        return stop.value


async def answered_aside(store: AsyncStore, ask: Ask[R], aside: Aside) -> R:
    """`answered_async` for an ask that computes for long: it runs in a thread between its questions."""
    verb, result = await aside.run(_next, ask.send, None)
    while verb is not None:
        try:
            answer = await verb(store)
        except Exception as error:
            verb, result = await aside.run(_next, ask.throw, error)
        else:
            verb, result = await aside.run(_next, ask.send, answer)
    return cast("R", result)


def _next(go_on: Callable[[Any], Callable[[Any], Any]], value: Any) -> tuple[Callable[[Any], Any] | None, Any]:
    """The next question, or the result: a future cannot carry a StopIteration."""
    try:
        return go_on(value), None
    except StopIteration as stop:
        return None, stop.value
