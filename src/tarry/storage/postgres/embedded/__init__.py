"""A private PostgreSQL server for one machine: started on demand, shared by processes, stopped after the last one.

Every process that calls `start` holds a shared file lock for as long as it uses the server; the kernel gives it back
however the process ends. A small supervisor, detached from all of them, is the parent of PostgreSQL and waits for that
lock to be free. So there is no owner whose death could take the server away, and no counter that could be wrong.

- here: what a using process does: settings, environment, binaries, the data directory, joining or launching
- `supervisor/`: what the detached process does: becoming somebody PostgreSQL runs as, initdb, serving, stopping

Linux and other systems with `flock`; not Windows.
"""

from .errors import EmbeddedError
from .server import Embedded, start
from .settings import EmbeddedSettings

__all__ = ["Embedded", "EmbeddedError", "EmbeddedSettings", "start"]
