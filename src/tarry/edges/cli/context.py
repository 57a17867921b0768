"""The session of one command (database, output, confirmation), and the decorator that registers a command."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tarry.core.errors import EmbeddedError, UnknownQueue
from tarry.edges.cli.exit_codes import CommandFailed, ExitCode, Interrupted, ReaderGone, Usage
from tarry.edges.cli.help import CONTEXT, GROUPS, Command, group, option
from tarry.edges.cli.output.printer import EntityView, Output, Printer
from tarry.edges.cli.output.text import shown
from tarry.edges.env import dsn_from, libpq_dsn, no_color_from

if TYPE_CHECKING:
    from datetime import datetime

    from tarry.app import App
    from tarry.core.security.audit import AuditEntry

T = TypeVar("T")
Action = Callable[..., ExitCode | None]
_DONE = 200
"""Audit status of a command that succeeded, as for the broker. A failed or unconfirmed command has none."""


def _entry(path: str, given: Mapping[str, Any]) -> AuditEntry:
    """The audit entry of an administrative command, with its options."""
    from tarry.core.security.audit import AuditEntry

    options: dict[str, Any] = {}
    for name, value in given.items():
        options |= vars(value) if is_dataclass(value) else {name: value}
    # Reduced to text that PostgreSQL accepts: options are audited before they are validated.
    detail = {
        name: str(value).replace("\x00", "").encode(errors="replace").decode()[:200]
        for name, value in options.items()
        if value is not None
    }
    queue = detail.get("name") if path.startswith("tarry queue ") else detail.get("queue")
    return AuditEntry("command line", path, queue, detail)


@dataclass(frozen=True, slots=True)
class CommandSession:
    dsn: str | None
    """From --dsn; None: the environment decides."""
    printer: Printer
    quiet: bool = False
    debug: bool = False
    audited: AuditEntry | None = None
    """None: the command is not audited."""
    audited_after: dict[str, str] = field(default_factory=dict[str, str])
    """Details known only after the change."""

    @property
    def embedded(self) -> bool:
        return self.dsn is None and dsn_from() is None

    @contextmanager
    def open(self, queue: str | None = None) -> Generator[App]:
        """Connect to the chosen database. Queues are not created on use; `queue` must exist."""
        self.prepare()
        from tarry.app import connect
        from tarry.core.settings import StoreSettings

        with connect(self.dsn, settings=StoreSettings(create_queues=False, pool_size=2)) as app:
            security = app.store.security
            row = None if self.audited is None else app.store.run(security.audit(self.audited))
            if queue is not None:
                app.queues.get(queue)
            yield app
            if row is not None:
                app.store.run(security.audited(row, _DONE, detail=self.audited_after or None))

    def prepare(self, *, announce: bool = True) -> None:
        """Validate the DSN and announce a new embedded database, before any connection."""
        from tarry import admin

        # The pool logs every failed attempt; the command reports the failure once.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        admin.check_dsn(self.dsn)
        if announce and self.embedded:
            with suppress(EmbeddedError, OSError):  # the server reports it
                if home := admin.missing_embedded_home():
                    self.note(f"no database was named (--dsn, TARRY_DSN, PG*): an embedded one is created in {home}")

    def listing(
        self,
        view: EntityView[T],
        items: Sequence[T],
        *,
        empty: str | None = None,
        now: datetime | None = None,
        limit: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Print a list of entities, and note that it is empty or cut at `limit`. `more`: further JSON fields."""
        self.printer.listing(view, items, now=now, more=more)
        if not items and empty is not None:
            self.note(empty)
        elif len(items) == limit:
            self.note(f"the first {limit:,}; there may be more: --limit")

    def create_queue(self, app: App, name: str) -> None:
        """Create a queue unless it exists."""
        try:
            app.queues.get(name)
        except UnknownQueue:
            app.queues.create(name, exist_ok=True)
            self.note(f"queue {name} did not exist and was created with the default settings")

    def note(self, text: str) -> None:
        """Print a note on stderr, for people only: JSON contains everything a program needs."""
        if not self.quiet and self.printer.for_people:
            _write_aside(text)

    def warn(self, text: str) -> None:
        """Print a warning on stderr, even with --quiet."""
        _write_aside(f"warning: {text}")

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and self.printer.for_people and sys.stderr.isatty()

    @contextmanager
    def progress(self, description: str) -> Generator[Callable[..., None]]:
        """Show progress on stderr, if that is a terminal. Yields a function that updates `completed`, `total` and `text`."""
        if not self.shows_progress:
            yield _no_progress
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[text]")]
        columns = (SpinnerColumn(), texts[0], BarColumn(28), texts[1], TimeElapsedColumn())
        console = Console(stderr=True, highlight=False, no_color=not self.printer.colored)
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(description, total=None, text="")
            yield functools.partial(progress.update, task)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Require a confirmation before data is lost. Without a terminal, `--yes` is required."""
        if yes:
            return
        typed = _prompt(f"{question} [y/N] ", "this needs a confirmation", "add --yes")
        if typed.lower() not in ("y", "yes"):
            raise CommandFailed("not confirmed; nothing was changed")

    def confirm_name(self, question: str, name: str, *, given: str | None) -> str:
        """Prompt for the name of the object to remove permanently, unless it was `given` as an option."""
        if given is not None:
            return given
        return _prompt(f"{question} Type {name} to continue: ", "this needs the name again", f"add --confirm {name}")


def _no_progress(**changes: Any) -> None:
    """Show nothing: there is no terminal."""


def _write_aside(text: str) -> None:
    sys.stderr.write(shown(text) + "\n")
    sys.stderr.flush()


def _prompt(question: str, need: str, hint: str) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage(f"{need}, and there is no terminal", hint=hint)
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


_shared = functools.partial(option, panel="Connection and output")


@dataclass(frozen=True)
class Shared:
    """Options of every command. They may also precede its name: `tarry -o json queue list`."""

    dsn: Annotated[str | None, _shared("--dsn DSN", "Else TARRY_DSN, else PG* variables, else embedded.")] = None
    output: Annotated[Output | None, _shared("--output -o FORMAT", "table, json or jsonl.")] = None
    json: Annotated[bool, _shared("--json", "Short for --output json.")] = False
    quiet: Annotated[bool, _shared("--quiet -q", "No notes on stderr.")] = False
    no_color: Annotated[bool, _shared("--no-color", "No colours; also with NO_COLOR set.")] = False
    debug: Annotated[bool, _shared("--debug", "Show the traceback of an error.")] = False

    def over(self, earlier: Shared) -> Shared:
        """These options, with those that are not given taken from `earlier` on the command line."""
        given = {name: value for name, value in vars(self).items() if value not in (None, False)}
        if given.pop("json", False):
            given["output"] = Output.JSON
        return replace(earlier, **given)

    def session(self) -> CommandSession:
        color = not (self.no_color or no_color_from())
        printer = Printer(self.output or Output.TABLE, color=color)
        return CommandSession(self.dsn and libpq_dsn(self.dsn), printer, quiet=self.quiet, debug=self.debug)


def now_of(app: App) -> datetime:
    """The time by the database clock."""
    return app.store.run(app.store.queues.now())


def _print_version(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version

        sys.stdout.write(f"tarry {version('tarry')}\n")
        raise typer.Exit


def root(
    ctx: typer.Context,
    shared: Shared,
    version: Annotated[
        bool, option("--version", "Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Callback of `tarry` itself: keeps the options given before the command name."""
    ctx.obj = shared.over(Shared())


def command(path: str, *examples: str, audited: bool = False) -> Callable[[Action], Action]:
    """Register a command under its path: `queue list`, `offer`.

    Its docstring and examples become the help text. The first parameter is the session, and the shared options are added. A
    parameter whose type is a dataclass stands for one option per field. `audited`: through the broker, the change would
    require an admin key.
    """
    group_name, _, name = path.rpartition(" ")
    app = GROUPS.setdefault(group_name, group(group_name))

    def register(action: Action) -> Action:
        def run(ctx: typer.Context, shared: Shared, **given: Any) -> int:
            session = shared.over(ctx.find_root().obj).session()
            if audited:
                session = replace(session, audited=_entry(ctx.command_path, given))
            try:
                code = action(session, **given)
                session.printer.flush()
            except BrokenPipeError as error:
                raise ReaderGone from error
            except KeyboardInterrupt as error:
                raise Interrupted from error
            return int(code or ExitCode.OK)

        own = list(inspect.signature(action, eval_str=True).parameters.values())[1:]
        first, last = list(inspect.signature(run, eval_str=True).parameters.values())[:2]
        flat = flattened(run, [first, *own, last])
        # `\\b` keeps the line breaks of the examples.
        listed = "".join(f"\n  {example}" for example in examples)
        help = f"{inspect.cleandoc(action.__doc__ or '')}\n\n\b\nExamples:{listed}"
        app.command(name, help=help, cls=Command, context_settings=CONTEXT)(flat)
        return action

    return register


def flattened(action: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """The function for typer: a parameter whose type is a dataclass becomes one option per field."""
    bundles: dict[str, Any] = {p.name: p.annotation for p in parameters if is_dataclass(p.annotation)}
    fields = {name: inspect.signature(bundle, eval_str=True).parameters for name, bundle in bundles.items()}
    options = [option for p in parameters for option in (fields[p.name].values() if p.name in fields else [p])]

    @functools.wraps(action)
    def flat(**given: Any) -> Any:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field: given.pop(field) for field in fields[name]})
        return action(**given)

    flat.__annotations__ = {option.name: option.annotation for option in options}
    vars(flat)["__signature__"] = inspect.Signature(
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    )
    return flat
