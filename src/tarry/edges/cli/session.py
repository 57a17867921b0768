"""One run of a command: which database, how to print, whom to ask. Every command gets one as its first argument."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.edges.cli.exits import CommandFailed, ExitCode, Interrupted, ReaderGone, Usage
from tarry.edges.cli.help import CONTEXT, Command
from tarry.edges.cli.output import Output, Printer
from tarry.edges.env import dsn_from, no_color_from

if TYPE_CHECKING:
    from tarry.app import App

SHARED_PANEL = "Connection and output"
Action = Callable[..., ExitCode | None]


_DONE = 200
"""As the broker says it. What failed, or was not confirmed, has no answer in the audit."""


@dataclass(frozen=True, slots=True)
class Audited:
    """A command of an administrator, with what it was given."""

    action: str
    queue: str | None
    detail: dict[str, str]

    @classmethod
    def of(cls, path: str, given: Mapping[str, Any]) -> Audited:
        said = {name: _storable(str(value)) for name, value in given.items() if value is not None}
        queue = said.get("name") if path.startswith("tarry queue ") else said.get("queue")
        return cls(path, queue, said)


def _storable(text: str) -> str:
    """Whatever came on the line: whether it may be said is decided later."""
    return text.replace("\x00", "").encode(errors="replace").decode()[:200]


@dataclass(frozen=True, slots=True)
class Session:
    dsn: str | None
    """As the command line said it; None leaves it to the environment."""
    printer: Printer
    quiet: bool = False
    debug: bool = False
    audited: Audited | None = None
    """What the audit is told of this command; None: it changes nothing that only an administrator may."""

    @property
    def embedded(self) -> bool:
        return self.dsn is None and dsn_from() is None

    @contextmanager
    def open(self) -> Generator[App]:
        """Tarry on the chosen database. A queue that does not exist is an answer here, not something to create."""
        self.prepare()
        from tarry.app import connect
        from tarry.core.settings import StoreSettings

        with connect(self.dsn, settings=StoreSettings(create_queues=False, pool_size=2)) as app:
            if self.audited is None:
                yield app
                return
            row = app.store.audit(
                "command line", self.audited.action, queue=self.audited.queue, detail=self.audited.detail
            )
            yield app
            app.store.audited(row, _DONE, detail=self.audited.detail)

    def audit_also(self, **detail: str) -> None:
        """For what the audit shall have and is known only when it is done; called while the session is open."""
        if self.audited is not None:
            self.audited.detail.update(detail)

    def prepare(self) -> None:
        """Before any connection: refuse an address that cannot be one, and say which database is meant if nobody did."""
        from tarry import upkeep

        # The pool reports every failed attempt to the log; the command reports the failure once.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        upkeep.check_dsn(self.dsn)
        if self.embedded:
            self.note("no database was named (--dsn, TARRY_DSN, PG*): using the embedded one")

    def note(self, text: str) -> None:
        """Prose for people, on stderr. Programs get everything they need as data."""
        if not self.quiet and self.printer.for_people:
            self.printer.aside(text)

    def warn(self, text: str) -> None:
        """What should not go unread, also by those who asked for no remarks."""
        self.printer.aside(f"warning: {text}")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is lost. Where nobody can answer, only `--yes` will do."""
        if yes:
            return
        self._require_terminal("this needs a confirmation, and there is no terminal to ask on", "add --yes")
        if self._ask(f"{question} [y/N] ").lower() not in ("y", "yes"):
            raise CommandFailed("nothing was done", ExitCode.FAILED)

    def confirm_name(self, question: str, name: str, *, given: str | None) -> str:
        """For what cannot be undone: the name, typed again."""
        if given is not None:
            return given
        self._require_terminal("this needs the name again, and there is no terminal to ask on", f"add --confirm {name}")
        return self._ask(f"{question} Type {name} to go on: ")

    def _require_terminal(self, problem: str, hint: str) -> None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Usage(problem, hint=hint)

    def _ask(self, question: str) -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip()


Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        help="Else TARRY_DSN, else PG* variables, else embedded.",
        rich_help_panel=SHARED_PANEL,
    ),
]
OutputFormat = Annotated[
    Output | None,
    typer.Option("--output", "-o", metavar="FORMAT", help="table, json or jsonl.", rich_help_panel=SHARED_PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="Short for --output json.", rich_help_panel=SHARED_PANEL)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.", rich_help_panel=SHARED_PANEL)]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="No colours; also with NO_COLOR set.", rich_help_panel=SHARED_PANEL)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=SHARED_PANEL)]

_SHARED: dict[str, tuple[Any, Any]] = {
    "dsn": (Dsn, None),
    "output": (OutputFormat, None),
    "json": (Json, False),
    "quiet": (Quiet, False),
    "no_color": (NoColor, False),
    "debug": (Debug, False),
}


@dataclass(frozen=True, slots=True)
class Shared:
    """The options that every command has, which may also stand before its name: `tarry -o json queue list`."""

    dsn: str | None = None
    output: Output | None = None
    json: bool = False
    quiet: bool = False
    no_color: bool = False
    debug: bool = False

    def over(self, earlier: Shared) -> Shared:
        """These, and where they say nothing, those given earlier on the line."""
        return Shared(
            dsn=earlier.dsn if self.dsn is None else self.dsn,
            output=(Output.JSON if self.json else None) or self.output or earlier.output,
            quiet=self.quiet or earlier.quiet,
            no_color=self.no_color or earlier.no_color,
            debug=self.debug or earlier.debug,
        )

    def session(self) -> Session:
        color = not (self.no_color or no_color_from())
        printer = Printer(self.output or Output.TABLE, color=color)
        return Session(self.dsn, printer, quiet=self.quiet, debug=self.debug)


def command(
    app: typer.Typer, name: str, *, examples: Sequence[str], hidden: bool = False, audited: bool = False
) -> Callable[[Action], Action]:
    """Register a command: its docstring and examples become the help, the shared options are added, and the first
    parameter of the function is its session. `audited`: it does what through the broker only an administrator may."""

    def register(action: Action) -> Action:
        @functools.wraps(action)
        def run(ctx: typer.Context, **given: Any) -> int:
            shared = Shared(**{option: given.pop(option) for option in _SHARED})
            earlier = ctx.find_root().obj
            session = shared.over(earlier if isinstance(earlier, Shared) else Shared()).session()
            if audited:
                session = replace(session, audited=Audited.of(ctx.command_path, given))
            try:
                code = action(session, **given)
                session.printer.flush()
            except BrokenPipeError as error:
                raise ReaderGone from error
            except KeyboardInterrupt as error:
                raise Interrupted from error
            return int(code or ExitCode.OK)

        parameters = list(inspect.signature(action, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        shared = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for option, (annotation, default) in _SHARED.items()
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        signature = inspect.Signature([context, *own, *shared])
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        vars(run)["__signature__"] = signature
        app.command(name, help=help_text(action, examples), cls=Command, context_settings=CONTEXT)(run)
        return action

    return register


def help_text(action: Callable[..., Any], examples: Sequence[str]) -> str:
    """What it does, when to use it, and examples, which the mark `\\b` keeps from being wrapped into one line."""
    said = inspect.cleandoc(action.__doc__ or "")
    return said + "\n\n\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
