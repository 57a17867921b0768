"""Read first by every Python process that Spark starts: it takes PySpark from where pip has installed it.

Spark puts a zip file of the same modules in front, which has no compiled ones: each process would compile them, in 0.8 s.
"""

from __future__ import annotations

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", "-src.zip"))]
