"""Queues that are created on first use."""

import logging

_log = logging.getLogger("tarry")


def warn_of_polled(queue: str) -> None:
    """A poll created this queue. If its name is misspelled, nothing will ever arrive, and the poll would wait in silence."""
    _log.warning("the queue %r did not exist, and was created by a poll; tarry queue list shows which there are", queue)
