"""The command line: where a run begins, and where every error ends. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import typer

from tarry.core.errors import TarryError
from tarry.edges.cli.exits import ExitCode, ReaderGone, code_of
from tarry.edges.cli.help import group
from tarry.edges.cli.session import Debug, Dsn, Json, NoColor, OutputFormat, Quiet, Shared
from tarry.edges.cli.text import safe_json, shown, without_secrets
from tarry.edges.cli.tree import Tree

# What the parser raises for a command line that it cannot read.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])


@cache
def cli() -> typer.Typer:
    app = group(
        "tarry",
        "Keep messages until they are due, and hand each one over safely.\n\n"
        "\b\nFirst steps:\n"
        '  tarry send hello \'{"hi": "there"}\' --in 10s\n'
        "  tarry receive hello --wait 15s\n"
        "  tarry doctor",
        Tree,
    )
    app.callback()(_root)
    return app


def _root(
    ctx: typer.Context,
    dsn: Dsn = None,
    output: OutputFormat = None,
    json: Json = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
    debug: Debug = False,
) -> None:
    given = Shared(dsn=dsn, output=output, json=json, quiet=quiet, no_color=no_color, debug=debug)
    ctx.obj = given.over(Shared())


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number, and the command goes on.
        if hasattr(stream, "reconfigure"):
            cast("Any", stream).reconfigure(errors="backslashreplace")
    try:
        code = int(cli()(args, prog_name="tarry", standalone_mode=False) or 0)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        _let_go_of_stdout()
        return ExitCode.OK
    except typer.Exit as error:
        return error.exit_code
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _UsageError as error:
        return _usage(error, args)
    except SystemExit:
        raise
    except BaseException as error:
        return _failed(error, args)
    return code


def _usage(error: typer.BadParameter, args: Sequence[str]) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(error.format_message() + "\n")
        return ExitCode.USAGE
    path = error.ctx.command_path if error.ctx else "tarry"
    message = error.format_message().replace("Value error, ", "")
    _report(message[:1].lower() + message[1:], f"see: {path} -h", ExitCode.USAGE, args)
    return ExitCode.USAGE


def _failed(error: BaseException, args: Sequence[str]) -> int:
    code = code_of(error)
    if "--debug" in args:
        sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    if code is ExitCode.INTERRUPTED:
        _report("interrupted", None, code, args)
    elif isinstance(error, TarryError):
        _report(str(error), error.hint, code, args)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _report(text, "for the traceback run it again with --debug", code, args)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk: Python would try once more when it ends, and make the exit code its own
        _let_go_of_stdout()
    return code


def _report(message: str, hint: str | None, code: ExitCode, args: Sequence[str]) -> None:
    """One line that says what is wrong, one that says what to do; or one JSON object, for programs."""
    message = without_secrets(" ".join(message.split()))
    if _wants_json(args):
        told = {"schema": "tarry.error/1", "error": message, "hint": hint, "exit_code": int(code)}
        sys.stderr.write(safe_json(json.dumps(told, ensure_ascii=False)) + "\n")
        return
    sys.stderr.write(f"error: {shown(message)}\n")
    if hint:
        sys.stderr.write(f"hint: {shown(hint)}\n")


def _wants_json(args: Sequence[str]) -> bool:
    """As the command line says, also where the parser could not read it."""
    wanted = False
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        if arg == "--":
            break
        if arg == "--json":
            wanted = True
        elif arg in ("-o", "--output"):
            wanted = following in ("json", "jsonl")
        elif arg.startswith(("--output=", "-o")):
            wanted = arg.removeprefix("--output=").removeprefix("-o") in ("json", "jsonl")
    return wanted


def _let_go_of_stdout() -> None:
    """Python flushes stdout once more when it ends; what is left goes nowhere, without a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except OSError:
        pass
    finally:
        os.close(nowhere)
