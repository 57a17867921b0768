"""Tests that need Spark. They share one session per process, so run them in one process: `-n` makes one JVM per worker."""

from tests.kit.spark import lake, pipeline_app, spark

__all__ = ["lake", "pipeline_app", "spark"]
