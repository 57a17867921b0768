"""The commands of `tarry`: the summary of each, and the modules that define it.

Modules are imported when their command is looked up: `tarry -h` reads this table only.
"""

from importlib import import_module
from typing import Any, NamedTuple

from typer.core import TyperGroup
from typer.main import get_group

from tarry.edges.cli.help import GROUPS, group


class CommandEntry(NamedTuple):
    summary: str
    """The first sentence of the help text; a test compares them."""
    modules: tuple[str, ...]


def _entry(summary: str, *modules: str) -> CommandEntry:
    return CommandEntry(summary, tuple(f"tarry.edges.cli.commands.{module}" for module in modules))


# In order of use.
ENTRIES = {
    "offer": _entry("Store a message until it is due.", "offer"),
    "poll": _entry("Lease messages that are due, print and ack them.", "offer"),
    "dev": _entry("Run everything in one process, for development.", "services"),
    "serve": _entry("Run the broker with its dashboard.", "services"),
    "worker": _entry("Handle messages with the functions of a module.", "services"),
    "consumer": _entry("List running workers, and drain them.", "consumer"),
    "scheduler": _entry("Plan the ticks of schedules.", "services"),
    "queue": _entry("List, create, change, pause, empty and delete queues.", "queues"),
    "message": _entry("Show, list, edit, drop and settle messages, and why they wait.", "messages"),
    "dlq": _entry("Show, redrive and discard dead letters.", "dead_letters"),
    "redrive": _entry("Watch, pause, resume and cancel redrive jobs.", "dead_letters"),
    "journal": _entry("Read the journal as it grows, and prune it.", "journal"),
    "sweeper": _entry("Run maintenance: expired leases, redrives, partitions.", "services"),
    "cron": _entry("List, add, change, trigger and explain schedules.", "cron", "cron_file", "cron_preview"),
    "calendar": _entry("Show what is due, hour by hour.", "calendar"),
    "pipeline": _entry(
        "Archive, measure and watch queues with Spark.", "pipeline", "pipeline_report", "pipeline_simulate"
    ),
    "verify": _entry("Compare archive, journal and live messages.", "pipeline"),
    "anomaly": _entry("List, acknowledge and mute anomalies.", "anomaly"),
    "grafana": _entry("Print a Grafana dashboard and Prometheus alert rules.", "grafana"),
    "key": _entry("Create, list and revoke API keys of the broker.", "key"),
    "audit": _entry("List administrative actions and refused requests.", "key"),
    "db": _entry("Create, migrate and check the database schema.", "database"),
    "doctor": _entry("Check the database and this machine.", "database"),
    "version": _entry("Show the version of Tarry.", "database"),
}


class CommandRegistry(TyperGroup):
    """The root group: its commands are `ENTRIES`."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands: Any = dict.fromkeys(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in ENTRIES and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name, ENTRIES[cmd_name])
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in ENTRIES.items()])


def _load(name: str, entry: CommandEntry) -> Any:
    for module in entry.modules:
        import_module(module)
    if name not in GROUPS:
        return get_group(GROUPS[""]).commands[name]
    parent = group("")
    parent.add_typer(GROUPS[name], name=name, help=entry.summary)
    return get_group(parent).commands[name]
