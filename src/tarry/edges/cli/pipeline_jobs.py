"""The jobs of the pipeline as the command line knows them: by name, in order, imported when one is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any, get_type_hints

from tarry.edges.cli.exits import CommandFailed, ExitCode, Usage
from tarry.edges.cli.targets import imported, of_another_kind

IN_ORDER = ("archive", "facts", "metrics", "consumers", "anomalies", "forecast")
"""Each builds on those before it."""
OTHERS = ("compact", "prune")
ROUTINE = (*IN_ORDER, "compact")
"""What `tarry pipeline run` does."""
WORTH_MERGING = 60
"""Small batches before a run merges them: of a run every minute those of an hour. What is merged is still small and is
written again with the next ones, so it must not be often."""
ALL = (*IN_ORDER, *OTHERS)
_JOBS = "tarry.edges.spark.jobs"


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    given: Mapping[str, Any]
    """What the command line said. None leaves it to the job."""


def chosen(names: Sequence[str], *, prune: bool) -> list[str]:
    """In the order in which they build on each other, whatever the order in which they were named."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise Usage(f"there is no job {unknown[0]!r:.80}", hint=f"the jobs are {', '.join(ALL)}")
    wanted = {*(names or ROUTINE), *(("prune",) if prune else ())}
    return [name for name in ALL if name in wanted]


def load(name: str) -> Any:
    """The module of a job. One that cannot be imported is one sentence, not a traceback."""
    try:
        return import_module(f"{_JOBS}.{name}")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == f"{_JOBS}.{name}":
            raise CommandFailed(f"this version of Tarry has no job {name}", ExitCode.FAILED) from error
        raise CommandFailed(
            f"the data pipeline needs {missing}, which is not installed",
            ExitCode.FAILED,
            hint="pip install 'tarry[spark]'",
        ) from error


def registry_of(target: str) -> Any:
    """Somebody's own detectors: a registry as it is, or one detector beside those that are built in."""
    module = load("anomalies")
    from tarry.edges.spark.transforms.anomalies.registry import Detector, Registry

    _, found = imported(target, what="registry", example="tarry pipeline anomalies --detectors shop.watch:registry")
    if isinstance(found, Detector):
        return module.BUILT_IN.with_detector(found)
    if not isinstance(found, Registry):
        raise of_another_kind(target, found, "a registry or a detector", hint="see docs/explanation/anomalies.md")
    return found


def arguments(module: Any, given: Mapping[str, Any]) -> Any:
    """The argument value of a job, with what was said; the rest are its own defaults."""
    kind: Any = getattr(module, module.__name__.rpartition(".")[2].capitalize() + "Args")
    kinds = get_type_hints(kind)
    return kind(**{name: _as(kinds[name], value) for name, value in given.items() if value is not None})


def _as(kind: Any, value: Any) -> Any:
    """A word of the command line as the member of an enumeration, where a job wants one."""
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value
