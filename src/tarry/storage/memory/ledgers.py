"""Which ledger of ticks a prefix uses, and the queue that it belongs to. `cron_adopt.sql` does the same."""

from __future__ import annotations


class Ledgers:
    def __init__(self) -> None:
        self._queues: dict[str, dict[str, str]] = {}
        """By prefix, the names of its ledgers and their queues; the one that was installed last is the last."""

    def adopt(self, prefix: str, queue: str, current: str | None) -> str:
        """The ledger of a schedule that is installed: its own, that which this queue had before, or a new one."""
        queues = self._queues.setdefault(prefix, {})
        before = [name for name, owner in queues.items() if owner == queue]
        if current is not None:
            name = current
        elif before:
            name = before[-1]
        else:
            name = f"~{len(queues)}".ljust(201, "~") + prefix if queues else prefix
        queues.pop(name, None)
        queues[name] = queue
        return name

    def last(self, prefix: str) -> str:
        return next(reversed(self._queues.get(prefix, {prefix: ""})))

    def renamed(self, name: str, new_name: str) -> None:
        for queues in self._queues.values():
            queues.update({ledger: new_name for ledger, queue in queues.items() if queue == name})
