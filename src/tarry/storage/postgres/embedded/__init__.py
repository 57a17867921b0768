"""A private PostgreSQL server for one machine: started on demand, shared by processes, stopped after the last one.

Every process that calls `start` holds a shared file lock while it uses the server; the kernel releases it however the
process ends. A small detached supervisor is the parent of PostgreSQL and waits for that lock to be free. So no process
owns the server and could take it down with it, and there is no reference count that could be wrong.

- here: the using process: settings, binaries, the data directory, joining or launching
- `supervisor/`: the detached process: assuming an account that PostgreSQL accepts, initdb, serving, stopping

Linux and other systems with `flock`; not Windows.
"""

from tarry.core.errors import EmbeddedError

from .server import Embedded, EmbeddedSettings, start

__all__ = ["Embedded", "EmbeddedError", "EmbeddedSettings", "start"]
