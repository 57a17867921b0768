"""S8: is there one order of all answers about a key that real time allows? A search by Wing, Gong and Lowe, key by key.

The model is a register: which payload is live under the key, or none. A poll and a read observe it; an offer, an edit, a
drop and an ack change it. Only the queue `register` is searched: nothing dies there, and no call is retried, so nothing but
these calls changes a key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.checker.index import DONE, STORED, Address, Index
from tests.chaos.checker.verdict import Verdict
from tests.chaos.layout import REGISTER
from tests.chaos.recording import OK, UNKNOWN, Operation

MOST_STATES = 100_000
"""Of one search. Beyond it the key counts as left out."""
Value = str | None


class Step(NamedTuple):
    """One call as the register sees it. One that was not answered may be left out of the order."""

    invoked: float
    returned: float
    verb: str
    payload: Value
    result: str | bool | None
    policy: str = ""

    @property
    def optional(self) -> bool:
        return self.result == UNKNOWN

    def after(self, value: Value) -> tuple[Value, ...]:
        """What the register may hold after this call; nothing if the call cannot have been answered so."""
        match self.verb:
            case "observe":
                return (value,) if value == self.payload else ()
            case "contains":
                return (value,) if (value is not None) == self.result else ()
            case "offer":
                return self._after_offer(value)
            case "edit":
                if self.result == "gone":
                    return (value,) if value is None else ()
                return () if value is None else (value,) if self.result == "leased" else (self.payload,)
            case "drop":
                return () if self.result is not UNKNOWN and self.result != (value is not None) else (None,)
            case _:  # ack
                return (None,) if value == self.payload else (value,) if self.result == UNKNOWN else ()

    def _after_offer(self, value: Value) -> tuple[Value, ...]:
        match self.result:
            case "created":
                return (self.payload,) if value is None else ()
            case "updated":
                return () if value is None or self.policy == "keep" else (self.payload,)
            case "ignored":
                return () if value is None else (value,)
            case _:
                if value is None or self.policy == "replace":
                    return (self.payload,)
                return (value,) if self.policy == "keep" else (self.payload, value)


def check_registers(index: Index, verdict: Verdict) -> None:
    for address, steps in _steps(index).items():
        steps.sort(key=lambda step: step.invoked)
        last = max((step.returned for step in steps if step.returned != float("inf")), default=steps[-1].invoked)
        if index.faults.forgot(steps[0].invoked, last):
            verdict.report("keys_not_linearized")
            continue
        is_linearizable = linearizable(steps)
        verdict.report("keys_not_linearized" if is_linearizable is None else "keys_linearized")
        if is_linearizable is False:
            verdict.count("not_linearizable", (address, steps))


def linearizable(steps: list[Step]) -> bool | None:
    """None: too many orders to try. `steps` are sorted by when they were invoked."""
    required = sum(1 << i for i, step in enumerate(steps) if not step.optional)
    by_return = sorted((i for i, step in enumerate(steps) if not step.optional), key=lambda i: steps[i].returned)
    seen: set[tuple[int, Value]] = {(0, None)}
    stack: list[tuple[int, Value]] = [(0, None)]
    while stack:
        done, value = stack.pop()
        if done & required == required:
            return True
        horizon = next(steps[i].returned for i in by_return if not done >> i & 1)
        likely: list[tuple[int, Value]] = []
        for i, step in enumerate(steps):
            if step.invoked > horizon:
                break
            if done >> i & 1:
                continue
            for after in step.after(value):
                state = (done | 1 << i, after)
                if state not in seen:
                    seen.add(state)
                    # Those that must be in the order are tried first: what was not answered mostly did not happen.
                    (stack if step.optional else likely).append(state)
        stack += likely
        if len(seen) > MOST_STATES:
            return None
    return False


def _steps(index: Index) -> dict[Address, list[Step]]:
    steps: dict[Address, list[Step]] = defaultdict(list)
    for op in index.history.operations:
        if op.queue == REGISTER.name and op.status in (OK, UNKNOWN):
            for key, step in _steps_of(op, index):
                steps[op.queue, key].append(step)
    return steps


def _steps_of(op: Operation, index: Index) -> Iterator[tuple[str, Step]]:
    times = (op.invoked, op.returned)
    is_known = op.status == OK
    match op.name:
        case "offer":
            for i, (key, payload, _, policy) in enumerate(op.facts[0]):
                outcome = op.result[0][i] if is_known else UNKNOWN
                if outcome in (*STORED, "ignored", UNKNOWN):
                    yield key, Step(*times, "offer", payload, outcome, policy)
        case "poll" if is_known:
            for row in op.result[0]:
                yield row[0], Step(*times, "observe", row[1], None)
        case "ack":
            for i, (key, token) in enumerate(op.facts[0]):
                outcome = op.result[0][i] if is_known else UNKNOWN
                if outcome in (DONE, UNKNOWN):
                    yield key, Step(*times, "ack", index.by_token[token].payload, outcome)
        case "read" if is_known:
            yield op.facts[0], Step(*times, "observe", op.result[0], None)
        case "contains" if is_known:
            yield op.facts[0], Step(*times, "contains", None, op.result[0])
        case "drop":
            yield op.facts[0], Step(*times, "drop", None, op.result[0] if is_known else UNKNOWN)
        case "edit":
            yield op.facts[0], Step(*times, "edit", op.facts[1], op.result[0] if is_known else UNKNOWN)
        case _:
            pass
