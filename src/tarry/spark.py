"""Public Spark API, for notebooks and jobs: `import tarry.spark`."""

from tarry.core.extras import needs_extra

with needs_extra("spark", "tarry.spark"):
    from tarry.edges.spark.session import session
    from tarry.edges.spark.sink.writer import offer, outcome
    from tarry.edges.spark.source.jdbc import read
    from tarry.edges.spark.source.reader import register

__all__ = ["offer", "outcome", "read", "register", "session"]
