"""Spark beside the brokers."""

from tests.spark.conftest import spark

__all__ = ["spark"]
