"""Which dead letters a page or an action means: from the query or a form, in words, as a link and as commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.dead_letters.redrive import DeadFilter, Where
from tarry.core.errors import InvalidInput
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.listing import whole
from tarry.edges.dashboard.screen import View
from tarry.edges.formats import instant, length, past
from tarry.wire.base import MOST

FIELDS = ("fingerprint", "type", "key_prefix", "died_from", "died_to")


def choice(view: View, values: Mapping[str, str] | None = None) -> DeadFilter:
    """The filter in the query, or in the fields of a form. Empty fields do not restrict; an empty selection is an error."""
    query = view.request.query_params
    given = query if values is None else values
    texts = {name: (given.get(name) or "").strip() or None for name in FIELDS}
    picked = [*(query.getlist("version") if values is None else ()), *(given.get("versions") or "").split(",")]
    versions = [_version(text) for text in picked if text.strip()]
    if given.get("selected") and not versions:
        raise InvalidInput("no dead letter is selected", hint="go back and check at least one")
    if len(versions) > MOST:
        raise InvalidInput(f"at most {MOST:,} dead letters can be selected", hint="use a filter")
    where: Where = {
        "fingerprint": texts["fingerprint"],
        "type": texts["type"],
        "key_prefix": texts["key_prefix"],
        "died_from": past(texts["died_from"], "died since", view.now),
        "died_to": past(texts["died_to"], "died before", view.now),
        "versions": versions or None,
    }
    return DeadFilter.of(where)


def _version(text: str) -> int:
    if (version := whole(text.strip(), 19)) is None:
        raise InvalidInput(f"a version is a number, not {text!r:.40}")
    return version


def query_of(where: DeadFilter) -> dict[str, str]:
    """The filter as fields of a query or a form, with instants instead of times ago."""
    fields = {name: getattr(where, name) for name in FIELDS}
    texts = {name: _text(value) for name, value in fields.items() if value is not None}
    if where.versions is not None:
        texts["versions"] = ",".join(map(str, where.versions))
    return texts


def _text(value: str | datetime) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def words(where: DeadFilter) -> str:
    parts = [
        f"group {where.fingerprint}" if where.fingerprint else "",
        f"type {where.type}" if where.type else "",
        f"keys that begin with {where.key_prefix}" if where.key_prefix else "",
        f"died since {instant(where.died_from)}" if where.died_from else "",
        f"died before {instant(where.died_to)}" if where.died_to else "",
        f"{len(where.versions):,} selected" if where.versions is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "every dead letter"


def is_selective(where: DeadFilter) -> bool:
    """Part of the filter has no index: pages of a list are searched for in a bounded number of dead letters."""
    return where.type is not None or where.key_prefix is not None


def api_body(where: DeadFilter, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {name: text for name, text in query_of(where).items() if name != "versions"}
    if where.versions is not None:
        fields["versions"] = [*where.versions]
    return fields | {name: value for name, value in more.items() if value or isinstance(value, float)}


def api_query(where: DeadFilter) -> str:
    pairs = [(name, value) for name, value in query_of(where).items() if name != "versions"]
    return commands.query([*pairs, *(("version", str(version)) for version in where.versions or ())])


def options(where: DeadFilter) -> list[str]:
    """For `tarry dlq …`."""
    names = {
        "fingerprint": "--group", "type": "--type", "key_prefix": "--key-prefix", "died_from": "--since",
        "died_to": "--until",
    }  # fmt: skip
    texts = query_of(where)
    chosen = [word for name, option in names.items() if name in texts for word in (option, texts[name])]
    return [*chosen, *(word for version in where.versions or () for word in ("--version", str(version)))]


def arguments(where: DeadFilter, **more: Any) -> str:
    """For methods of `queue.dead_letters`."""
    fields = {name: value for name in FIELDS if (value := getattr(where, name)) is not None}
    if where.versions is not None:
        fields["versions"] = [*where.versions]
    fields |= {name: value for name, value in more.items() if value or isinstance(value, float)}
    return ", ".join(f"{name}={_literal(value)}" for name, value in fields.items())


def _literal(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"timedelta(seconds={value.total_seconds():g})"
    return f'datetime.fromisoformat("{_text(value)}")' if isinstance(value, datetime) else repr(value)


def listed(view: View, queue: str, where: DeadFilter) -> Commands:
    """The list of these dead letters in other tools."""
    return Commands(
        curl=commands.curl(f"{view.api('queues', queue)}/dead{api_query(where)}"),
        cli=commands.cli("dlq", "list", queue, *options(where)),
        python=_python(queue, f"for letter in dead.list({arguments(where)}):", "    print(letter.key, letter.error)"),
    )


def redriven(
    view: View,
    queue: str,
    where: DeadFilter,
    *,
    rate: float | None,
    canary: int,
    jitter: timedelta = timedelta(0),
    stop_above: float | None = None,
    max_attempts: int | None = None,
    target: str | None = None,
    after: timedelta = timedelta(0),
) -> Commands:
    wait, spread = (length(span) if span else None for span in (after, jitter))
    how = [
        *(("--rate", f"{rate:g}/s") if rate else ()),
        *(("--canary", str(canary)) if canary else ()),
        *(("--jitter", spread) if spread else ()),
        *(("--stop-above", f"{stop_above * 100:g}%") if stop_above is not None else ()),
        *(("--max-attempts", str(max_attempts)) if max_attempts else ()),
        *(("--target", target) if target else ()),
        *(("--after", wait) if wait else ()),
    ]
    how_fast: dict[str, Any] = {"rate": rate, "canary": canary, "stop_above": stop_above, "target": target}
    how_fast |= {"max_attempts": max_attempts} if max_attempts else {}
    body = api_body(where, **how_fast, jitter=spread, after=wait)
    call = arguments(where, **how_fast, jitter=jitter, after=after)
    return Commands(
        curl=commands.curl(f"{view.api('queues', queue)}/dead:start_redrive", "POST", body),
        cli=commands.cli("dlq", "redrive", queue, *options(where), *how, "--job", "--detach"),
        python=_python(queue, f"job = dead.start_redrive({call})"),
    )


def discarded(view: View, queue: str, where: DeadFilter) -> Commands:
    return Commands(
        curl=commands.curl(f"{view.api('queues', queue)}/dead{api_query(where)}", "DELETE"),
        cli=commands.cli("dlq", "discard", queue, *options(where)),
        python=_python(queue, f"dead.discard({arguments(where)})"),
    )


def job_commands(view: View, job: int, verb: str = "show") -> Commands:
    url = view.api("redrives", str(job))
    return Commands(
        curl=commands.curl(url) if verb == "show" else commands.curl(f"{url}/{verb}", "POST"),
        cli=commands.cli("redrive", verb, str(job)),
        python=commands.python(
            f"job = app.redrives.get({job})", "print(job.job)" if verb == "show" else f"job.{verb}()"
        ),
    )


def grouped(view: View, queues: Sequence[str]) -> Commands:
    """The groups of a queue; of the first, where a page shows several."""
    queue = queues[0]
    return Commands(
        curl=commands.curl(f"{view.api('queues', queue)}/dead:groups"),
        cli=commands.cli("dlq", "groups", queue),
        python=_python(queue, "for group in dead.groups():", "    print(group.count, group.pattern)"),
    )


def _python(queue: str, *lines: str) -> str:
    return commands.python(f"dead = app.queue({queue!r}).dead_letters", *lines)
