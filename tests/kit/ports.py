"""Ports for servers whose port is chosen before they start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_DICE = random.SystemRandom()
"""Other than the one of the tests, which begins with the same numbers in every process of a run."""


def free_port() -> int:
    """Below the ports that the system gives to clients, so that none of them takes it before the server listens. The port ten
    thousand above is free, too: the bus of a Redis cluster uses it."""
    while True:
        port = _DICE.randrange(12_000, 22_000)
        with suppress(OSError), socket.socket() as listener, socket.socket() as bus:
            listener.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port
