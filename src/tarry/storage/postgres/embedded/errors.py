"""What goes wrong with the embedded server is said in the project's own error tree."""

from tarry.core.errors import EmbeddedError

__all__ = ["EmbeddedError"]
