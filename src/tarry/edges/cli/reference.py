"""The page docs/reference/cli.md, made from the help of every command; a test refuses one that is out of date.

Make it again with `python -m tarry.edges.cli.reference > docs/reference/cli.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

WIDTH = 78
"""What a terminal of 80 columns gets."""

_INTRODUCTION = """\
# The command line

<!-- Made by `python -m tarry.edges.cli.reference > docs/reference/cli.md` from the help texts; do not edit. -->

`tarry COMMAND -h` prints what is below. What holds for every command:

- **stdout is data, stderr is prose.** Tables for people, `--output json` for programs, `--output jsonl` with one object
  per line. Boxes and colours appear on a terminal only; `NO_COLOR` and `--no-color` turn colours off.
- **JSON is stable.** Every object names its schema and version (`"schema": "tarry.queue.list/1"`); new fields may come,
  fields do not go or change their meaning within a version. Times are RFC 3339 in UTC, durations are seconds.
- **Errors** are one line `error: …` and, where there is something to do, one line `hint: …`; with JSON they are one
  object on stderr: `{"schema": "tarry.error/1", "error": …, "hint": …, "exit_code": …}`. See [exit codes](exit-codes.md).
- **The database** is `--dsn`, else `TARRY_DSN`, else what libpq's `PG*` variables say, else an embedded PostgreSQL. A
  password is better kept in `TARRY_DSN` or `~/.pgpass` than on a command line, where other users can see it.
- **Durations** are `90s`, `15m`, `2h`, `1h30m`, `1d`, plain seconds, or ISO 8601 (`PT15M`). **Times** are RFC 3339 with a
  zone (`2030-01-31T18:00:00+02:00`), or `+10m` from now by the clock of the database.
- **What removes something asks first.** Where there is no terminal to ask on it refuses, unless `--yes` (for
  `queue purge`: `--confirm NAME`) is given.
- **A key that begins with a dash** comes after `--`: `tarry message show orders -- -17`.
"""


def commands() -> Iterator[tuple[str, str]]:
    """Every command with its help, as it looks at 80 columns."""
    from tarry.edges.cli.main import cli

    yield from _walk(get_command(cli()), "tarry", None)


def _walk(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    ctx = command.context_class(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield ctx.command_path, command.get_help(ctx)
    for child in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        yield from _walk(command.get_command(ctx, child), child, ctx)


def page() -> str:
    sections = [f"## {path}\n\n```text\n{text}\n```\n" for path, text in commands()]
    return "\n".join([_INTRODUCTION, *sections])


if __name__ == "__main__":
    sys.stdout.write(page())
