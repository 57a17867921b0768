"""tarry queue export, import: a queue as lines of JSON, through pipes and files."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from tarry.core.errors import TarryError, UnknownQueue
from tarry.edges.cli.exits import ExitCode, Usage
from tarry.edges.cli.output import Cell, Value
from tarry.edges.cli.queue import Name, app
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural, safe_json

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.handles.transfer import BadLine, Imported

_CHUNK = 64 * 1024
_SHOW_EVERY = 5_000
_SAID = 20
"""Bad lines that are told on stderr; as data, all that the import remembers."""
_COUNTS = ("created", "updated", "ignored", "superseded", "fine", "refused", "not_stored", "blank")
_STYLES = {"created": "green", "refused": "red", "not_stored": "red"}


@command(
    app,
    "export",
    examples=(
        "tarry queue export orders > orders.jsonl",
        "tarry queue export orders | gzip > orders.jsonl.gz",
        "tarry queue export orders | tarry queue import orders --dsn $OTHER",
    ),
)
def export(cli: Session, name: Name) -> None:
    """Write the live messages of a queue, one line of JSON each.

    In due order, leased ones included, with all that an offer can say of them; dead letters are not among them. Read in
    pages, without a long transaction: what changes meanwhile may be missing, or there twice. The lines are what
    tarry queue import takes, and what GET /v1/queues/NAME/export answers.
    """
    out, count = sys.stdout.buffer, 0
    with cli.open() as opened, _progress(cli, "exported") as show:
        for line in opened.queues.export(name):
            # The same JSON, so an import reads the same; and harmless, whether it goes to a terminal now or by `cat` later.
            out.write(safe_json(line.decode()).encode())
            count += 1
            show(count)
        out.flush()
    cli.note(f"{plural(count, 'message')} exported")


@command(
    app,
    "import",
    examples=(
        "tarry queue import orders orders.jsonl",
        "zcat orders.jsonl.gz | tarry queue import orders",
        "tarry queue import orders orders.jsonl --dry-run   # only say what is bad",
        "tarry queue import orders orders.jsonl --on-bad stop -o json",
    ),
)
def import_lines(
    cli: Session,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines of JSON; - for stdin.")] = "-",
    on_bad: Annotated[
        str, typer.Option("--on-bad", metavar="RULE", help="A bad line: skip it, or stop there.")
    ] = "skip",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing; only say what is bad.")] = False,
) -> ExitCode:
    """Offer every line of a file.

    Each is an offer: payload, and where wanted key, at or delay, priority, type, headers and so on. They are stored in
    batches of 500, each as a whole, so what was stored before a failure stays; importing the same file again is safe for
    lines with a key and a time: they are ignored. Ends with 6 if lines were refused, with 7 if a dry run found such.
    """
    if on_bad not in ("skip", "stop"):
        raise Usage(f"--on-bad is skip or stop, not {on_bad!r:.80}")
    rule: Literal["skip", "stop"] = "stop" if on_bad == "stop" else "skip"
    with _opened(file) as stream, cli.open() as opened, _progress(cli, "read") as show:
        if not dry_run:
            _create(cli, opened, name)
        try:
            found = opened.queues.import_lines(name, _lines(stream, show), on_bad=rule, dry_run=dry_run)
        except TarryError as error:
            for note in getattr(error, "__notes__", ()):
                cli.warn(note)
            raise
    return _tell(cli, name, found, dry_run=dry_run)


def _lines(stream: IO[bytes], show: Show) -> Iterator[bytes | BadLine]:
    from tarry.handles.transfer import lines_of

    for count, line in enumerate(lines_of(iter(lambda: stream.read(_CHUNK), b"")), start=1):
        show(count)
        yield line


@contextmanager
def _opened(file: str) -> Generator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - what fails to open is told apart from what fails later
    except OSError as error:
        raise Usage(f"the file cannot be read: {error}") from None
    with stream:
        yield stream


def _create(cli: Session, opened: App, name: str) -> None:
    try:
        opened.queues.get(name)
    except UnknownQueue:
        opened.queues.create(name, exist_ok=True)
        cli.note(f"queue {name} did not exist, and was created with the default settings")


def _tell(cli: Session, name: str, found: Imported, *, dry_run: bool) -> ExitCode:
    if cli.printer.for_people:
        for number, problem in list(found.problems.items())[:_SAID]:
            cli.warn(f"line {number:,}: {problem}")
        if found.refused > _SAID:
            cli.warn(f"and {found.refused - _SAID:,} more")
    counts = {one: getattr(found, one) for one in _COUNTS if one != "fine" or dry_run}
    fields: list[tuple[str, Value]] = [("queue", name), ("lines", f"{found.lines:,}")]
    fields += [
        (one.replace("_", " "), Cell(f"{n:,}", _STYLES.get(one, "") if n else "")) for one, n in counts.items() if n
    ]
    problems = [{"line": number, "problem": problem} for number, problem in found.problems.items()]
    cli.printer.record(
        "tarry.queue.import/1",
        {"queue": name, "dry_run": dry_run, "lines": found.lines, **counts, "problems": problems},
        fields,
    )
    if not found.refused:
        return ExitCode.OK
    return ExitCode.CHECK_FAILED if dry_run else ExitCode.PARTLY


class Show:
    """How far it is, on one line of a terminal; nothing at all where nobody looks."""

    def __init__(self, word: str, *, visible: bool) -> None:
        self._word = word
        self._visible = visible
        self._shown = False

    def __call__(self, count: int) -> None:
        if self._visible and count % _SHOW_EVERY == 0:
            self._shown = True
            sys.stderr.write(f"\r{count:,} {self._word}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def _progress(cli: Session, word: str) -> Generator[Show]:
    show = Show(word, visible=sys.stderr.isatty() and not cli.quiet and cli.printer.for_people)
    try:
        yield show
    finally:
        show.end()
