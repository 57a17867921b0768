"""Brokers for the tests of clients."""

from tests.kit.brokers import behind, broker_url, http_loop, key, pinned

__all__ = ["behind", "broker_url", "http_loop", "key", "pinned"]
