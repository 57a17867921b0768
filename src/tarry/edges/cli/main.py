"""Entry point of `tarry`: runs a command and reports its errors. Heavy modules are imported by the commands."""

import inspect
import json
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import typer

from tarry.core.errors import TarryError
from tarry.edges.cli.context import flattened, root
from tarry.edges.cli.exit_codes import ExitCode, ReaderGone, code_of
from tarry.edges.cli.help import group
from tarry.edges.cli.output.text import safe_json, shown
from tarry.edges.cli.registry import CommandRegistry
from tarry.edges.secrets import without_secrets

# The parser's error for an invalid command line; its class is not exported.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
_TIMED = ("tarry cron add", "tarry cron edit")


@cache
def cli() -> typer.Typer:
    app = group(
        "tarry",
        "Store messages until they are due, and deliver each one safely.\n\n"
        "\b\nFirst steps:\n"
        '  tarry offer hello \'{"hi": "there"}\' --after 10s\n'
        "  tarry poll hello --wait 15s\n"
        "  tarry doctor",
        CommandRegistry,
    )
    app.callback()(flattened(root, list(inspect.signature(root, eval_str=True).parameters.values())))
    return app


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if cast("Any", sys.stderr) is None:  # closed: otherwise the next file or socket would get its number
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if cast("Any", sys.stdout) is None:
        _report("stdout is closed, so no result can be printed", "redirect it: >/dev/null", ExitCode.USAGE, args)
        return ExitCode.USAGE
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot show are escaped.
        if hasattr(stream, "reconfigure"):
            cast("Any", stream).reconfigure(errors="backslashreplace")
    try:
        code = int(cli()(args, prog_name="tarry", standalone_mode=False) or 0)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        _discard_stdout()
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
    times = "give times with --cron, --daily or --every; " if "extra argument" in message and path in _TIMED else ""
    _report(message[:1].lower() + message[1:], f"{times}see: {path} -h", ExitCode.USAGE, args)
    return ExitCode.USAGE


def _failed(error: BaseException, args: Sequence[str]) -> int:
    code = code_of(error)
    if "--debug" in args:
        sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    if code is ExitCode.INTERRUPTED:
        pass  # the user pressed Ctrl-C: the exit code is for scripts
    elif isinstance(error, TarryError):
        _report(error.message, error.hint, code, args)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        text = "; ".join([text, *getattr(error, "__notes__", ())])
        _report(text, "for the traceback run the command again with --debug", code, args)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk: Python would flush again at exit, fail, and change the exit code
        _discard_stdout()
    return code


def _report(message: str, hint: str | None, code: ExitCode, args: Sequence[str]) -> None:
    """Write the error and its hint, one line each, or one JSON object."""
    message = without_secrets(" ".join(message.split()))
    if _wants_json(args):
        data = {"schema": "tarry.error/1", "error": message, "hint": hint, "exit_code": int(code)}
        sys.stderr.write(safe_json(json.dumps(data, ensure_ascii=False)) + "\n")
        return
    sys.stderr.write(f"error: {shown(message)}\n")
    if hint:
        sys.stderr.write(f"hint: {shown(hint)}\n")


def _wants_json(args: Sequence[str]) -> bool:
    """Whether JSON output was requested; also for a command line that the parser refused."""
    is_json = False
    for arg, value in zip(args, [*args[1:], ""], strict=True):
        if arg == "--":
            break
        if arg == "--json":
            is_json = True
        elif arg in ("-o", "--output"):
            is_json = value in ("json", "jsonl")
        elif arg.startswith(("--output=", "-o")):
            is_json = arg.removeprefix("--output=").removeprefix("-o") in ("json", "jsonl")
    return is_json


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null: Python flushes it once more at exit, which would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except OSError:
        pass
    finally:
        os.close(null)
