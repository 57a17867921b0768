"""A driver of its own that archives, derives and compacts again and again until it is killed:
`python -m tests.edges.spark.archive_driver`.
"""

from __future__ import annotations

import sys

import tarry
from tarry.edges.spark.jobs import archive, compact, facts
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tarry.edges.spark.session import session
from tests.kit.spark import CONFIG


def main(dsn: str, lake: str, batch_rows: str) -> None:
    spark = session("local[2]", CONFIG)
    with tarry.connect(dsn) as app:
        while True:
            archive.run(spark, app, ArchiveArgs(lake=lake, batch_rows=int(batch_rows)))
            facts.run(spark, app, FactsArgs(lake=lake))
            compact.run(spark, app, CompactArgs(lake=lake, at_least=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
