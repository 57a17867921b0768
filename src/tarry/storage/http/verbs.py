"""Which verbs of a store a broker has. Each is an op, decided once, and driven by the blocking and the awaiting shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tarry.core.errors import Refused, UnknownQueue
from tarry.core.settings import QueueSettings
from tarry.storage.http import dead_ops, ops, queue_ops, schedule_ops
from tarry.storage.http.call import Op
from tarry.storage.http.schedule_ops import queues_of

R = TypeVar("R")
Verb = Callable[..., Op[Any]]

OF_QUEUE: Mapping[str, Verb] = {
    verb.__name__: verb
    for verb in (
        ops.offer,
        ops.offer_many,
        ops.lease,
        ops.ack,
        ops.nack,
        ops.touch,
        ops.release,
        ops.bury,
        ops.read,
        ops.contains,
        ops.messages,
        ops.timeline,
        ops.counts,
        ops.edit,
        ops.drop,
        ops.drop_all,
        dead_ops.dead_letters,
        dead_ops.dead_groups,
        dead_ops.count_dead,
        dead_ops.redrive,
        dead_ops.purge_dead,
        dead_ops.start_redrive,
    )
}
"""About the messages of a queue, which is their first argument."""
_CREATING = frozenset({"offer", "offer_many", "lease"})
"""The verbs that create their queue if it is missing."""
VERBS: Mapping[str, Verb] = {
    **OF_QUEUE,
    **{
        verb.__name__: verb
        for verb in (
            dead_ops.redrive_job,
            dead_ops.redrive_jobs,
            dead_ops.turn_redrive,
            dead_ops.advance_redrive,
            queue_ops.create_queue,
            queue_ops.edit_queue,
            queue_ops.rename_queue,
            queue_ops.delete_queue,
            queue_ops.queue_info,
            queue_ops.queue_infos,
            queue_ops.pause,
            queue_ops.resume,
            ops.now,
            schedule_ops.schedules,
            schedule_ops.due_schedules,
            schedule_ops.next_wake_in,
            schedule_ops.rule,
            schedule_ops.ticks,
            schedule_ops.waiting_ticks,
            schedule_ops.forget_ticks,
        )
    },
}


def op_of(name: str, args: tuple[Any, ...], options: dict[str, Any], *, create: bool) -> Op[Any]:
    verb = VERBS[name]
    if name in _CREATING:
        queues = [args[0] if args else options["queue"]]
    elif name == "rule":
        queues = [queue for ruling in (args[0] if args else options["rulings"]) for queue in queues_of(ruling)]
    else:
        return verb(*args, **options)
    return _in_queues(queues, lambda: verb(*args, **options), create=create)


def _in_queues(queues: Iterable[str], make: Callable[[], Op[R]], *, create: bool) -> Op[R]:
    """As in the library: a missing queue is created by an offer or a poll, if this client's key may create it."""
    try:
        return (yield from make())
    except UnknownQueue:
        if not create:
            raise
        for queue in sorted(set(queues)):
            try:
                yield from queue_ops.create_queue(queue, QueueSettings(), exist_ok=True)
            except Refused:
                raise UnknownQueue(queue) from None
    return (yield from make())
