"""Cancellations of a task that an awaited library has swallowed or replaced by another error."""

import asyncio


def cancellations() -> int:
    """How often the current task was cancelled. Compare before and after a call to see whether it was cancelled meanwhile."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
