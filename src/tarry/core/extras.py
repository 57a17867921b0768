"""Optional dependencies: an import that fails names the extra to install."""

from collections.abc import Generator
from contextlib import contextmanager

from tarry.core.errors import TarryError


@contextmanager
def needs_extra(extra: str, purpose: str) -> Generator[None]:
    """Wrap the imports of an extra's modules: if one is missing, the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "tarry":
            raise
        raise TarryError(f"{purpose} needs {error.name}", hint=f"pip install 'tarry[{extra}]'") from error
