"""tarry cron apply, lint: schedules in a file."""

from __future__ import annotations

import tomllib
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from tarry.core.errors import InvalidInput, TarryError
from tarry.edges.cli import cron_options as given
from tarry.edges.cli import cron_views as views
from tarry.edges.cli.cron import app
from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.output import Cell, Column, Value
from tarry.edges.cli.payloads import Raw
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import length

if TYPE_CHECKING:
    from tarry.core.cron import ScheduleSpec

File = Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file.", show_default=False)]
_COLUMNS = (Column(""), Column("schedule", style="bold"), Column("change"))
_PROBLEMS = (Column("schedule", style="bold"), Column("problem"))
_OPTIONS = frozenset(given.Given._fields)
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "cron": ((str,), 'an expression in quotes, such as "30 2 * * *"'),
    "daily": ((str, list), 'times of day, such as ["02:00", "14:30"]'),
    "zone": ((str,), 'a name such as "Europe/Berlin"'),
    "queue": ((str,), "a name in quotes"),
    "type": ((str,), "a name in quotes"),
    "priority": ((int,), "a number from 0 to 9"),
    "start": ((str,), "a time with its zone, such as 2030-01-01T00:00:00Z"),
    "end": ((str,), "a time with its zone, such as 2030-01-01T00:00:00Z"),
}
"""What a file may have where it is not plain text."""


class Change(NamedTuple):
    sign: str
    """+ added, ~ changed, - removed, = the same."""
    prefix: str
    what: str


@command(
    app,
    "apply",
    audited=True,
    examples=(
        "tarry cron apply schedules.toml --dry-run",
        "tarry cron apply schedules.toml",
        "tarry cron apply schedules.toml --prune --yes",
    ),
)
def apply(
    cli: Session,
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would change.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove those of this file that it no longer has.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Make the schedules what a file says.

    All of it or nothing, in one transaction, after showing what changes. Schedules of code, of other files and those added
    by hand are left alone, unless the file has them too: then it asks before it takes them over.
    """
    source, wanted = _read(file)
    with cli.open() as opened:
        there = {state.prefix: state.spec for state in opened.schedules.list()}
        gone = [p for p, spec in there.items() if prune and spec.source == source and p not in wanted]
        taken = [p for p in wanted if p in there and there[p].source != source]
        changes = [_compared(spec, there.get(prefix)) for prefix, spec in wanted.items()]
        changes += [Change("-", prefix, "no longer in the file") for prefix in gone]
        if cli.printer.for_people:  # before anybody is asked, and before anything is done
            _show(cli, changes, applied=not dry_run)
        if not dry_run and any(change.sign != "=" for change in changes):
            if asked := [*_asked("remove", gone), *_asked("take over from others", taken)]:
                cli.confirm(f"This will {' and '.join(asked)}. Go on?", yes=yes)
            for queue in sorted({spec.queue for spec in wanted.values()}):
                opened.queues.create(queue, exist_ok=True)
            opened.schedules.apply(list(wanted.values()), remove=gone)
    if not cli.printer.for_people:
        _show(cli, changes, applied=not dry_run)
    count = sum(change.sign != "=" for change in changes)
    same = f", {len(changes) - count:,} as before" if count < len(changes) else ""
    cli.note(f"{plural(count, 'change')} {'would be made' if dry_run else 'made'}{same}")


@command(app, "lint", examples=("tarry cron lint schedules.toml",))
def lint(cli: Session, file: File) -> ExitCode | None:
    """Check a file of schedules. Needs no database.

    Every schedule is read as apply would, and every problem is named; ends with 7 if there is one.
    """
    _, specs, problems = _parsed(file)
    problems += [(prefix, said) for prefix, spec in specs.items() for said in _suspicious(spec)]
    cli.printer.listing(
        "tarry.schedule.problem.list/1",
        {"problems": [{"prefix": prefix, "problem": problem} for prefix, problem in problems]},
        _PROBLEMS,
        [[prefix, problem] for prefix, problem in problems],
        more={"ok": not problems, "schedules": len(specs)},
    )
    if problems:
        return ExitCode.CHECK_FAILED
    cli.note(f"{plural(len(specs), 'schedule')}, no problems")
    return None


def _asked(what: str, prefixes: list[str]) -> list[str]:
    more = f" and {len(prefixes) - _NAMED:,} more" if len(prefixes) > _NAMED else ""
    return [f"{what} {plural(len(prefixes), 'schedule')} ({', '.join(prefixes[:_NAMED])}{more})"] if prefixes else []


_NAMED = 10


def _read(file: Path) -> tuple[str, dict[str, ScheduleSpec]]:
    source, specs, problems = _parsed(file)
    if problems:
        prefix, problem = problems[0]
        more = f" (and {plural(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        raise InvalidInput(f"{prefix}: {problem}{more}", hint=f"see them all: tarry cron lint {file}")
    return source, specs


def _parsed(file: Path) -> tuple[str, dict[str, ScheduleSpec], list[tuple[str, str]]]:
    """Whose schedules they are, the schedules, and what is wrong with the others."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"the file {str(file)!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the file {str(file)!r} is not TOML: {error}") from None
    name, tables = content.pop("name", file.name), content.pop("schedules", {})
    problems = [(other, "only name and the table [schedules] are known here") for other in content]
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        problems.append(("name", f"the name of the file is text of 1 to {_LONGEST_NAME} characters, not {name!r:.80}"))
    source, specs = f"file:{name}", dict[str, "ScheduleSpec"]()
    if not isinstance(tables, dict):
        return source, specs, [*problems, ("schedules", "this must be a table of tables: [schedules.daily-report]")]
    for prefix, table in cast("dict[str, Any]", tables).items():
        try:
            specs[prefix] = _spec(prefix, table, source)
        except InvalidInput as error:
            problems.append((prefix, f"{error}; {error.hint}" if error.hint else str(error)))
        except TarryError as error:  # its hint names options of the command line
            problems.append((prefix, str(error)))
    return source, specs, problems


_LONGEST_NAME = 100


def _spec(prefix: str, table: Any, source: str) -> ScheduleSpec:
    from tarry.core.codecs import PLAIN

    if not isinstance(table, dict):
        raise InvalidInput(f"a schedule is a table, not {table!r:.80}")
    options = dict(cast("dict[str, Any]", table))
    payload = options.pop("payload", None)
    _check_names(prefix, options)
    for name in ("start", "end"):
        if hasattr(options.get(name), "isoformat"):
            options[name] = options[name].isoformat()
    if isinstance(options.get("daily"), time):
        options["daily"] = [options["daily"]]
    for name, value in options.items():
        wanted, said = _KINDS.get(name, ((str,), 'text, such as "5m"'))
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise InvalidInput(f"{name} must be {said}, not {value!r:.80}")
    return given.new_spec(prefix, given.Given(**options), Raw(*PLAIN.encode(payload)), source)


def _check_names(prefix: str, options: dict[str, Any]) -> None:
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown and isinstance(options[unknown[0]], dict):
        raise InvalidInput(
            f"there is no option {unknown[0]}",
            hint=f'a name with a dot needs quotes: [schedules."{prefix}.{unknown[0]}"]',
        )
    if unknown:
        known = ", ".join(sorted(_OPTIONS | {"payload"}))
        raise InvalidInput(f"there is no option {', '.join(unknown)}; there are {known}")
    if not options.keys() & {"cron", "daily", "every"}:
        raise InvalidInput("it has no times", hint="give one of cron, daily and every")
    if "zone" not in options and "every" not in options:
        raise InvalidInput("it has no zone", hint='by which clock is it? for example zone = "Europe/Berlin"')
    if "queue" not in options:
        raise InvalidInput("it has no queue", hint='where do its messages go? for example queue = "reports"')


def _compared(spec: ScheduleSpec, there: ScheduleSpec | None) -> Change:
    if there is None:
        return Change("+", spec.prefix, f"{views.when(spec)} to {spec.queue}")
    if there == spec:
        return Change("=", spec.prefix, "as before")
    old, new = views.spec_data(there), views.spec_data(spec)
    names = [name for name in new if name != "hash" and old.get(name) != new[name]]
    return Change("~", spec.prefix, ", ".join(f"{name}: {old.get(name)!r} → {new[name]!r}" for name in names))


def _show(cli: Session, changes: list[Change], *, applied: bool) -> None:
    cli.printer.listing(
        "tarry.schedule.change.list/1",
        {"changes": [change._asdict() for change in changes]},
        _COLUMNS,
        [_row(change) for change in changes if change.sign != "="],
        more={"applied": applied},
    )
    cli.printer.flush()


def _row(change: Change) -> list[Value]:
    style = {"+": "green", "~": "yellow", "-": "red"}[change.sign]
    return [Cell(change.sign, style), change.prefix, Cell(change.what, style)]


def _suspicious(spec: ScheduleSpec) -> list[str]:
    """What can be read, and can hardly be meant."""
    from datetime import UTC, datetime

    from tarry.core.cron import Misfire, Policy

    policy, timetable, said = spec.policy, spec.timetable, list[str]()
    first = timetable.next_after(datetime.now(UTC))
    second = None if first is None else timetable.next_after(first)
    if first is None:
        said.append("it never fires again: its end lies in the past")
    elif second is not None and policy.jitter_for > second - first:
        said.append(f"a jitter of {length(policy.jitter_for)} is longer than the time between two ticks")
    if policy.catch_up_for != Policy().catch_up_for and policy.misfire is not Misfire.ALL:
        said.append('catch_up says how far misfire = "all" goes back, and misfire is not "all"')
    return said
