"""Fixtures of the whole suite; they live in `tests/kit`, one module per concern."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

pytest_plugins = [f"tests.kit.{name}" for name in ("environment", "servers", "clocks", "backends", "sleepers", "cron")]

# The same examples in every run: a change is judged by what it changed. `HYPOTHESIS_PROFILE=deep` looks for new ones.
# No database of examples: the suite writes nothing into the checkout, under any account.
settings.register_profile(
    "ci",
    max_examples=60,
    derandomize=True,
    stateful_step_count=40,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep", settings.get_profile("ci"), max_examples=2_000, stateful_step_count=80, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_FUZZED = {"test_document.py", "test_relay_fuzzed.py"}
"""Cases are generated while these files are collected, which takes longer than all other files together."""

_LONGEST_FIRST = ("edges/spark", "chaos", "docs", "services", "concurrency", "storage", "edges", "plans", "migrations")
"""Folders of tests, by how long their longest file takes."""


def pytest_configure(config: pytest.Config) -> None:
    # A suite that a shell runs in the background ignores SIGINT, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # pyproject.toml keeps this plugin from every run: to import it takes two seconds of each worker.
    if _with_chaos(config):
        config.pluginmanager.import_plugin("schemathesis.pytest.plugin")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name in _FUZZED and not _with_chaos(config) else None


def _with_chaos(config: pytest.Config) -> bool:
    return "not chaos" not in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, after the shuffle: a worker takes whole files, and the many short ones fill the gaps at the end."""
    items.sort(key=lambda item: _turn(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and modules live until the end: a collection of garbage that walks through all of them finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extensions report what was not freed when the process ends


@cache
def _turn(path: Path) -> int:
    below = path.relative_to(Path(__file__).parent).as_posix()
    turns = [turn for turn, folder in enumerate(_LONGEST_FIRST) if below.startswith(f"{folder}/")]
    return min(turns, default=len(_LONGEST_FIRST))


class _SparkTogether(LoadFileScheduling):
    """One file per worker at a time, except that all files that need a session of Spark go to one worker.

    A JVM needs about 40 s of CPU until its code is loaded and compiled; a second worker with Spark would need them again.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if _needs_spark(nodeid) else super()._split_scope(nodeid)


_SPARK = "tests/edges/spark/"


def _needs_spark(nodeid: str) -> bool:
    return nodeid.startswith(_SPARK) and _has_session(nodeid.partition("::")[0])


@cache
def _has_session(file: str) -> bool:
    text = Path(__file__).parents[1].joinpath(file).read_text(encoding="utf-8")
    return re.search(r'SparkSession|usefixtures\("spark"\)', text) is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and not _needs_spark(item.nodeid):
        _give_way()


@cache
def _give_way() -> None:
    """To the worker with Spark, which has the longest way: the others have ended before it if they share evenly."""
    os.nice(5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _SparkTogether | None:
    return _SparkTogether(config, log) if config.option.dist == "loadfile" else None
