"""Spark beside the brokers."""

from tests.spark.conftest import session, spark

__all__ = ["session", "spark"]
