"""The pipeline of a database by its DSN, for Spark's planner and tasks.

Part of the composition root, but not of `app.py`: Spark starts two Python processes per read and write, and importing all
of Tarry took each of them longer than its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarry.storage.postgres.analytics import Pipeline


def pipeline_on(dsn: str) -> Pipeline:
    from tarry.storage.postgres.analytics import Pipeline

    return Pipeline(dsn)
