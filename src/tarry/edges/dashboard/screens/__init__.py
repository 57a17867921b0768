"""The screens, in the order of the navigation. Each module of `PARTS` has a `screen`; the others add pages to one."""

from __future__ import annotations

from tarry.edges.dashboard.screens import (
    anomalies,
    archive,
    calendar,
    consumers,
    dead,
    message,
    messages,
    overview,
    past,
    pipeline,
    queue,
    queues,
    redrives,
    schedule_editor,
    schedules,
    system,
)

PARTS = (overview, queues, messages, dead, schedules, calendar, consumers, anomalies, archive, pipeline, system)
FURTHER = (queue, message, past, redrives, schedule_editor)
"""Modules that add pages to the screen of another."""
