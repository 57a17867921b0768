"""The commands of `tarry`: what each is for, and which modules have it. They are loaded when they are asked for, so
that `tarry -h` answers from this table alone, and `tarry send` does not read what `tarry pipeline` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from typer.core import TyperGroup
from typer.main import get_group

from tarry.edges.cli.help import group


class Entry(NamedTuple):
    summary: str
    """The first sentence of its help; a test compares them."""
    module: str
    additions: tuple[str, ...] = ()
    """Further modules with commands of this group."""


# What is used most comes first.
ENTRIES = {
    "send": Entry("Send a message, now or for later.", "send"),
    "receive": Entry("Take messages that are due, and print them.", "receive"),
    "dev": Entry("Run everything in one process, while you write your program.", "dev"),
    "serve": Entry("Run the broker: produce and consume by HTTP.", "serve"),
    "worker": Entry("Handle messages with the functions of a module.", "worker"),
    "scheduler": Entry("Plan the ticks of schedules.", "scheduler"),
    "queue": Entry("List, create, change, pause and remove queues.", "queue", ("queue_lines",)),
    "message": Entry("Look at messages, settle and drop them.", "message", ("edit", "settle", "timeline")),
    "dlq": Entry("Look at dead letters, deliver them again, give them up.", "dlq", ("dlq_redrive",)),
    "redrive": Entry("Follow, pause, resume and cancel redrive jobs.", "redrive"),
    "sweeper": Entry("Clean up where nobody polls.", "sweeper"),
    "cron": Entry("List, add, change, pause, run and explain schedules.", "cron", ("cron_file", "cron_look")),
    "calendar": Entry("Show what comes due, hour by hour.", "calendar"),
    "pipeline": Entry(
        "Archive, measure and watch queues in bulk, with Spark.", "pipeline", ("pipeline_replay", "pipeline_report")
    ),
    "verify": Entry("Check archive, journal and live messages against each other.", "verify"),
    "anomaly": Entry("Look at what is unusual, acknowledge it, mute it.", "anomaly"),
    "key": Entry("Make, list and revoke API keys of the broker.", "key"),
    "db": Entry("Create and check the tables that Tarry needs.", "db"),
    "doctor": Entry("Check the database and this machine.", "doctor"),
    "demo": Entry("Show Tarry at work.", "demo_command"),
    "version": Entry("Show the version of Tarry.", "version"),
}


class Tree(TyperGroup):
    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands: Any = _Loaded()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(ENTRIES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in ENTRIES.items()])


class _Loaded(Mapping[str, Any]):
    """Commands by name, each with its modules imported when it is first looked up."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = _load(name, ENTRIES[name])
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


def _load(name: str, entry: Entry) -> Any:
    module, *_ = [import_module(f"tarry.edges.cli.{name}") for name in (entry.module, *entry.additions)]
    alone = group(name, "")
    if hasattr(module, "app"):
        alone.add_typer(module.app)
    else:
        module.register(alone)
    return get_group(alone).commands[name]
