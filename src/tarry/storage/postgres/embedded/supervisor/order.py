"""The parameters of a supervisor, as its command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .layout import Layout

PROBE = "are-namespaces-allowed"


@dataclass(frozen=True, slots=True)
class Order:
    home: Path
    binaries: Path
    major: int
    runtime_dir: Path | None

    @property
    def layout(self) -> Layout:
        return Layout(self.home)

    def to_argv(self) -> list[str]:
        return [str(self.home), str(self.binaries), str(self.major), str(self.runtime_dir or "")]

    @classmethod
    def from_argv(cls, argv: list[str]) -> Self:
        home, binaries, major, runtime_dir = argv
        return cls(Path(home), Path(binaries), int(major), Path(runtime_dir) if runtime_dir else None)
