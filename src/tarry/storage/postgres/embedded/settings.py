"""Settings of the embedded server."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """The location of the data, and the binaries to run.

    `data_dir` absent means `postgres-<major>` in `$TARRY_HOME`, or in the user's data directory. `binaries` is "18" or
    "16" (from the wheel), "system" (the newest installed), or the path of a bin directory.
    """

    data_dir: Path | None = None
    binaries: str = "18"
