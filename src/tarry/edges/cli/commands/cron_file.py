"""tarry cron apply, lint: schedules of a TOML file."""

import tomllib
from dataclasses import fields
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from tarry.core.cron.model import Misfire, Policy, ScheduleSpec, describe
from tarry.core.errors import InvalidInput, TarryError
from tarry.edges.cli.commands.cron import ScheduleOptions
from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import DryRun, Yes
from tarry.edges.cli.output.printer import Cell, EntityView, TableColumn, entity_view, plain
from tarry.edges.formats import length, plural
from tarry.wire.payload import Content
from tarry.wire.schedules import ScheduleConfig

File = Annotated[Path, argument("FILE", "A TOML file.")]
_STYLES = {"+": "green", "~": "yellow", "-": "red"}
_OPTIONS = frozenset(field.name for field in fields(ScheduleOptions))
_TIME = "a time with its zone, such as 2030-01-01T00:00:00Z"
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "cron": ((str,), 'an expression in quotes, such as "30 2 * * *"'),
    "daily": ((str, list), 'times of day, such as ["02:00", "14:30"]'),
    "zone": ((str,), 'a name such as "Europe/Berlin"'),
    "queue": ((str,), "a name in quotes"),
    "type": ((str,), "a name in quotes"),
    "priority": ((int,), "a number from 0 to 9"),
    "start": ((str,), _TIME),
    "end": ((str,), _TIME),
}
"""Types and descriptions of options; the others are durations and policies, as text."""
_NAMED = 10
_LONGEST_NAME = 100


class Change(NamedTuple):
    sign: str
    """+ added, ~ changed, - removed, = unchanged."""
    name: str
    what: str


_CHANGES: EntityView[Change] = entity_view(
    "tarry.schedule.change.list/1",
    "changes",
    TableColumn("", "sign", style=_STYLES),
    TableColumn("schedule", "name", style="bold"),
    TableColumn("change", lambda change: Cell(change.what, _STYLES.get(change.sign, ""))),
)


class _Problem(NamedTuple):
    name: str
    problem: str


_PROBLEMS: EntityView[_Problem] = entity_view(
    "tarry.schedule.problem.list/1",
    "problems",
    TableColumn("schedule", "name", style="bold"),
    TableColumn("problem"),
)


@command(
    "cron apply",
    "tarry cron apply schedules.toml --dry-run",
    "tarry cron apply schedules.toml",
    "tarry cron apply schedules.toml --prune --yes",
    audited=True,
)
def apply(
    cli: CommandSession,
    file: File,
    dry_run: DryRun = False,
    prune: Annotated[bool, option("--prune", "Delete schedules that were removed from this file.")] = False,
    yes: Yes = False,
) -> None:
    """Apply the schedules of a file.

    In one transaction, after showing the changes. Schedules from code, other files and tarry cron add stay; if the file
    also contains one of them, a confirmation is required.
    """
    source, specs = _read(file)
    with cli.open() as app:
        current = {state.name: state.spec for state in app.schedules.list()}
        removed = [n for n, spec in current.items() if prune and spec.source == source and n not in specs]
        taken = [n for n in specs if n in current and current[n].source != source]
        changes = [_compared(spec, current.get(name)) for name, spec in specs.items()]
        changes += [Change("-", name, "no longer in the file") for name in removed]
        if cli.printer.for_people:  # before the confirmation
            _print(cli, changes, applied=not dry_run)
        if not dry_run and any(change.sign != "=" for change in changes):
            if effects := [*_effect("remove", removed), *_effect("take over from other owners", taken)]:
                cli.confirm(f"This will {' and '.join(effects)}. Continue?", yes=yes)
            for queue in sorted({spec.queue for spec in specs.values()}):
                app.queues.create(queue, exist_ok=True)
            app.schedules.apply(list(specs.values()), remove=removed)
    if not cli.printer.for_people:
        _print(cli, changes, applied=not dry_run)
    count = sum(change.sign != "=" for change in changes)
    unchanged = f", {len(changes) - count:,} unchanged" if count < len(changes) else ""
    cli.note(f"{plural(count, 'change')} {'would be made' if dry_run else 'made'}{unchanged}")


@command("cron lint", "tarry cron lint schedules.toml")
def lint(cli: CommandSession, file: File) -> ExitCode | None:
    """Check a schedule file. Needs no database.

    Reports every problem; the exit code is 7 if there is one.
    """
    _, specs, problems = _parsed(file)
    problems += [_Problem(name, warning) for name, spec in specs.items() for warning in _warnings(spec)]
    cli.listing(_PROBLEMS, problems, more={"ok": not problems, "schedules": len(specs)})
    if problems:
        return ExitCode.CHECK_FAILED
    cli.note(f"{plural(len(specs), 'schedule')}, no problems")
    return None


def _effect(verb: str, names: list[str]) -> list[str]:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return [f"{verb} {plural(len(names), 'schedule')} ({', '.join(names[:_NAMED])}{more})"] if names else []


def _read(file: Path) -> tuple[str, dict[str, ScheduleSpec]]:
    source, specs, problems = _parsed(file)
    if problems:
        name, problem = problems[0]
        more = f" (and {plural(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        raise InvalidInput(f"{name}: {problem}{more}", hint=f"for all problems: tarry cron lint {file}")
    return source, specs


def _parsed(file: Path) -> tuple[str, dict[str, ScheduleSpec], list[_Problem]]:
    """The source of the schedules, the valid schedules by name, and the problems of the others."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"the file {str(file)!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the file {str(file)!r} is not TOML: {error}") from None
    file_name, tables = content.pop("name", file.name), content.pop("schedules", {})
    problems = [_Problem(other, "unknown key; allowed are name and the table [schedules]") for other in content]
    if not isinstance(file_name, str) or not 0 < len(file_name) <= _LONGEST_NAME:
        problems.append(_Problem("name", f"must be text of 1 to {_LONGEST_NAME} characters, got {file_name!r:.80}"))
    source, specs = f"file:{file_name}", dict[str, ScheduleSpec]()
    if not isinstance(tables, dict):
        return source, specs, [*problems, _Problem("schedules", "must be a table of tables: [schedules.daily-report]")]
    for name, table in cast("dict[str, Any]", tables).items():
        try:
            specs[name] = _spec(name, table, source)
        except InvalidInput as error:
            problems.append(_Problem(name, str(error)))
        except TarryError as error:  # its hint names options of the command line
            problems.append(_Problem(name, error.message))
    return source, specs, problems


def _spec(name: str, table: Any, source: str) -> ScheduleSpec:
    if not isinstance(table, dict):
        raise InvalidInput(f"a schedule must be a table, got {table!r:.80}")
    options = dict(cast("dict[str, Any]", table))
    payload = options.pop("payload", None)
    _check_keys(name, options)
    for key in ("start", "end"):
        if hasattr(options.get(key), "isoformat"):
            options[key] = options[key].isoformat()
    if isinstance(options.get("daily"), time):
        options["daily"] = [options["daily"]]
    for key, value in options.items():
        kinds, description = _KINDS.get(key, ((str,), 'text, such as "5m"'))
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise InvalidInput(f"{key} must be {description}, not {value!r:.80}")
    return ScheduleOptions(**options).new_spec(name, Content.of_value(payload), source, flags=False)


def _check_keys(name: str, options: dict[str, Any]) -> None:
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown and isinstance(options[unknown[0]], dict):
        raise InvalidInput(
            f"there is no option {unknown[0]}",
            hint=f'a name with a dot needs quotes: [schedules."{name}.{unknown[0]}"]',
        )
    if unknown:
        known = ", ".join(sorted(_OPTIONS | {"payload"}))
        raise InvalidInput(f"there is no option {', '.join(unknown)}; there are {known}")
    if not options.keys() & {"cron", "daily", "every"}:
        raise InvalidInput("it has no times", hint="give one of cron, daily and every")
    if "zone" not in options and "every" not in options:
        raise InvalidInput("it has no zone", hint='for example zone = "Europe/Berlin"')
    if "queue" not in options:
        raise InvalidInput("it has no queue", hint='for example queue = "reports"')


def _compared(spec: ScheduleSpec, current: ScheduleSpec | None) -> Change:
    if current is None:
        return Change("+", spec.name, f"{describe(spec.schedule)} to {spec.queue}")
    if current == spec:
        return Change("=", spec.name, "unchanged")
    old, new = (plain(ScheduleConfig.of_spec(each)) for each in (current, spec))
    keys = [key for key in new if key != "hash" and old.get(key) != new[key]]
    return Change("~", spec.name, ", ".join(f"{key}: {old.get(key)!r} → {new[key]!r}" for key in keys))


def _print(cli: CommandSession, changes: list[Change], *, applied: bool) -> None:
    shown = [change for change in changes if change.sign != "=" or not cli.printer.for_people]
    cli.listing(_CHANGES, shown, more={"applied": applied})
    cli.printer.flush()


def _warnings(spec: ScheduleSpec) -> list[str]:
    """Options that are valid, but probably a mistake."""
    policy, timetable, warnings = spec.policy, spec.timetable, list[str]()
    first = timetable.next_after(datetime.now(UTC))
    second = None if first is None else timetable.next_after(first)
    if first is None:
        warnings.append("it never fires again: its end is in the past")
    elif second is not None and policy.jitter_for > second - first:
        warnings.append(f"a jitter of {length(policy.jitter_for)} is longer than the time between two ticks")
    if policy.catch_up_for != Policy().catch_up_for and policy.misfire is not Misfire.ALL:
        warnings.append('catch_up is used only with misfire = "all"')
    return warnings
