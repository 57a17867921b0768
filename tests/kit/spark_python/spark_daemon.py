"""The process from which Spark forks its Python workers, with what each of them would import again, in a second.

Spark leaves the imports to the workers, since a fork copies no threads. Of these modules only Arrow's allocator starts one,
and it is prepared for forks.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

IMPORTED = (
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.pandas.types",
    "tarry.edges.spark.sink.writer",
    "tarry.edges.spark.source.stream",
    "tarry.storage.postgres.analytics",
)


def main() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy starts no threads of its own
    for name in (*IMPORTED, *sys.argv[1:2]):  # the argument is the module of the worker
        import_module(name)
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
