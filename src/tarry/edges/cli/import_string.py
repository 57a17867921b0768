"""Import of `module:name` targets from the user's code."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tarry.edges.cli.exit_codes import Usage


def imported(target: str, *, what: str, example: str) -> tuple[ModuleType, Any]:
    """The module, imported with the current folder on sys.path, and its attribute or None."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise Usage(f"the target must be module:{what}, got {target!r:.120}", hint=f"for example: {example}")
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise Usage(f"the target must name a module, not a file: {target!r:.120}", hint=f"write {dotted}:{name}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported_module = importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"there is no module {error.name}", hint=f"searched in {here} and on sys.path") from error
        raise Usage(
            f"module {module} cannot be imported: {type(error).__name__}: {error}",
            hint="for the traceback run the command again with --debug",
        ) from error
    return imported_module, getattr(imported_module, name, None)


def wrong_type(target: str, value: object, expected: str, *, hint: str) -> Usage:
    problem = "does not exist" if value is None else f"is a {type(value).__name__}, not {expected}"
    return Usage(f"{target} {problem}", hint=hint)
