"""What is being measured now. Drawn between turns only: a screen that refreshes itself would be charged to the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars


class Progress:
    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._started = time.monotonic()

    def show(self, text: str) -> None:
        if not self._quiet:
            self._console.print(f"[dim]{time.monotonic() - self._started:5.0f} s[/]  {text}", highlight=False)

    @contextmanager
    def stage(self, title: str, steps: int) -> Generator[Callable[[str], None]]:
        if self._quiet or not self._console.is_terminal:
            self.show(f"{title} …")
            yield lambda _: None
            return
        columns = (
            TextColumn("{task.description:44}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[contender]}"),
        )
        with Bars(*columns, console=self._console, auto_refresh=False, transient=True) as bars:
            task = bars.add_task(title, total=steps, contender="")
            taken = 0

            def step(contender: str) -> None:
                nonlocal taken
                bars.update(task, completed=taken, contender=contender)
                bars.refresh()
                taken += 1

            yield step
        self.show(title)
