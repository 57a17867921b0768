"""What goes wrong with the embedded server, in words that say what to do next."""


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL could not be found, started or joined."""
