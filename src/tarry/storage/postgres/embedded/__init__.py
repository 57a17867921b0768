"""A private PostgreSQL server for one machine: started on demand, shared by processes, stopped after the last one.

Every process that calls `start` holds a shared file lock while it uses the server; the kernel releases it when the process
ends, in whatever way. A small detached supervisor is the parent of PostgreSQL and waits until that lock is free. So the end
of one process cannot stop the server for others, and there is no reference count to get wrong.

- this package, in the using process: settings, binaries, the data directory, joining or launching a server
- `supervisor/`, in the detached process: switching to an account that PostgreSQL accepts, initdb, serving, stopping

Requires `flock`: Linux and other Unix systems, not Windows.
"""

from tarry.core.errors import EmbeddedError

from .server import Embedded, EmbeddedSettings, missing_home, start

__all__ = ["Embedded", "EmbeddedError", "EmbeddedSettings", "missing_home", "start"]
