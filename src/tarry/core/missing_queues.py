"""Queues that are created on first use."""

import logging

_log = logging.getLogger("tarry")


def warn_of_polled(queue: str) -> None:
    """Log that a poll created this queue. If the name is misspelled, the poll would wait forever without any sign."""
    _log.warning("the queue %r did not exist, and was created by a poll; tarry queue list shows which there are", queue)
