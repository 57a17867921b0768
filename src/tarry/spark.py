"""`import tarry.spark`: what a notebook or a Spark job needs of Tarry."""

from tarry.edges.spark.session import session
from tarry.edges.spark.sink import offer, outcome
from tarry.edges.spark.source import register

__all__ = ["offer", "outcome", "register", "session"]
