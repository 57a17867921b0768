"""The published state of a ready server. Valid only while the supervisor lock is held."""

import json
from dataclasses import dataclass
from pathlib import Path

from .layout import Layout


@dataclass(frozen=True, slots=True)
class State:
    socket_dir: Path
    postmaster: int
    supervisor: int


def write_state(layout: Layout, state: State) -> None:
    draft = layout.state.with_suffix(".new")
    draft.write_text(
        json.dumps(
            {"socket_dir": str(state.socket_dir), "postmaster": state.postmaster, "supervisor": state.supervisor}
        )
    )
    draft.replace(layout.state)


def read_state(layout: Layout) -> State | None:
    try:
        said = json.loads(layout.state.read_text())
    except FileNotFoundError:
        return None
    return State(Path(said["socket_dir"]), int(said["postmaster"]), int(said["supervisor"]))


def forget_state(layout: Layout) -> None:
    layout.state.unlink(missing_ok=True)
