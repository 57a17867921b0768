"""The pipeline of a database, for those who have nothing but its address: Spark's planner and its tasks.

Beside `app.py` in the composition root. Not in it, because Spark starts two new Python processes for every read and every
write, and importing the whole of Tarry took each of them longer than its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarry.storage.postgres.pipeline import Pipeline


def pipeline_on(dsn: str) -> Pipeline:
    from tarry.storage.postgres.pipeline import Pipeline

    return Pipeline(dsn)
