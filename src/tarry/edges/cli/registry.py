"""The commands of `tarry`: the summary of each, and the modules that define it.

Modules are imported when their command is looked up: `tarry -h` reads this table only.
"""

from importlib import import_module
from typing import Any

from typer.core import TyperGroup
from typer.main import get_group

from tarry.edges.cli.help import GROUPS, group

ENTRIES: dict[str, tuple[str, ...]] = {
    "offer": ("Store a message until it is due.", "offer"),
    "poll": ("Lease messages that are due, print and ack them.", "offer"),
    "dev": ("Run everything in one process, for development.", "services"),
    "serve": ("Run the broker with its dashboard.", "services"),
    "worker": ("Handle messages with the functions of a module.", "services"),
    "consumer": ("List running workers, and drain them.", "consumer"),
    "scheduler": ("Plan the ticks of schedules.", "services"),
    "queue": ("List, create, change, pause, empty and delete queues.", "queues"),
    "message": ("Show, list, edit, drop and settle messages, and why they wait.", "messages"),
    "dlq": ("Show, redrive and discard dead letters.", "dead_letters"),
    "redrive": ("Watch, pause, resume and cancel redrive jobs.", "dead_letters"),
    "journal": ("Read the journal as it grows, and prune it.", "journal"),
    "sweeper": ("Run maintenance: expired leases, redrives, partitions.", "services"),
    "cron": ("List, add, change, trigger and explain schedules.", "cron", "cron_file", "cron_preview"),
    "calendar": ("Show what is due, hour by hour.", "calendar"),
    "pipeline": ("Archive, measure and watch queues with Spark.", "pipeline", "pipeline_report", "pipeline_simulate"),
    "verify": ("Compare archive, journal and live messages.", "pipeline"),
    "anomaly": ("List, acknowledge and mute anomalies.", "anomaly"),
    "grafana": ("Print a Grafana dashboard and Prometheus alert rules.", "grafana"),
    "key": ("Create, list and revoke API keys of the broker.", "key"),
    "audit": ("List administrative actions and refused requests.", "key"),
    "db": ("Create, migrate and check the database schema.", "database"),
    "doctor": ("Check the database and this machine.", "database"),
    "version": ("Show the version of Tarry.", "database"),
}
"""In order of use: the first sentence of the help text, which a test compares, and the modules."""


class CommandRegistry(TyperGroup):
    """The root group: its commands are `ENTRIES`."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands: Any = dict.fromkeys(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in ENTRIES and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name, *ENTRIES[cmd_name])
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (summary, *_) in ENTRIES.items()])


def _load(name: str, summary: str, *modules: str) -> Any:
    for module in modules:
        import_module(f"tarry.edges.cli.commands.{module}")
    if name not in GROUPS:
        return get_group(GROUPS[""]).commands[name]
    parent = group("")
    parent.add_typer(GROUPS[name], name=name, help=summary)
    return get_group(parent).commands[name]
