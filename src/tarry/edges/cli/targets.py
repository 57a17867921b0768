"""`module:name` on a command line: what somebody's own code has under that name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tarry.edges.cli.exits import Usage


def imported(target: str, *, what: str, example: str) -> tuple[ModuleType, Any]:
    """The module, as if it were imported from here, and what it has there; None if it has nothing of that name."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise Usage(f"say module:{what}, not {target!r:.120}", hint=f"as in: {example}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            hint = f"it is looked for in {here} and on sys.path"
            raise Usage(f"there is no module {error.name}", hint=hint) from error
        raise _broken(module, error) from error
    except Exception as error:
        raise _broken(module, error) from error
    return found, getattr(found, name, None)


def of_another_kind(target: str, found: object, wanted: str, *, hint: str) -> Usage:
    what = "nothing of that name" if found is None else f"a {type(found).__name__}"
    return Usage(f"{target} is {what}, and not {wanted}", hint=hint)


def _broken(module: str, error: Exception) -> Usage:
    return Usage(
        f"module {module} cannot be imported: {type(error).__name__}: {error}",
        hint="for the traceback run it again with --debug",
    )
