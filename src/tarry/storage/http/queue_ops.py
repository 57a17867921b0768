"""The verbs about queues as requests to a broker."""

from __future__ import annotations

from typing import Any

from tarry.core.errors import UnknownQueue
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.http import reading
from tarry.storage.http.call import Call, Op, ask, code_of, drawn, named


def create_queue(name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
    body = {"name": name, "exist_ok": exist_ok, **settings.as_data()}
    call = Call("POST", "/v1/queues", body, queue=name, key=None if exist_ok else drawn())
    return reading.queue_info((yield from ask(call)).json())


def edit_queue(name: str, settings: QueueSettings, *, only: frozenset[str]) -> Op[QueueInfo]:
    changes = {setting: value for setting, value in settings.as_data().items() if setting in only}
    call = Call("PATCH", f"/v1/queues/{named(name)}", changes, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def rename_queue(name: str, new_name: str) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{named(name)}/rename", {"new_name": new_name}, queue=name, key=drawn())
    return reading.queue_info((yield from ask(call)).json())


def delete_queue(name: str, *, force: bool) -> Op[None]:
    params = {"force": "true"} if force else None
    answer = yield from ask(Call("DELETE", f"/v1/queues/{named(name)}", params=params, queue=name), expected=_GONE)
    if code_of(answer) in _GONE and answer.tries == 1:
        raise UnknownQueue(name)


_GONE = ("unknown_queue",)
"""After a second try, a queue that is not there is one that the first has deleted."""


def queue_info(name: str) -> Op[QueueInfo]:
    call = Call("GET", f"/v1/queues/{named(name)}", params={"count_to": 0}, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def queue_infos() -> Op[list[QueueInfo]]:
    found: list[QueueInfo] = []
    params: dict[str, Any] | None = None
    while True:
        page = (yield from ask(Call("GET", "/v1/queues", params=params))).json()
        found += [reading.queue_info(one) for one in page["queues"]]
        if page.get("next") is None:
            return found
        params = {"after": page["next"]}


def pause(name: str, *, reason: str | None = None) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{named(name)}/pause", {"reason": reason}, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def resume(name: str) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{named(name)}/resume", queue=name)
    return reading.queue_info((yield from ask(call)).json())
