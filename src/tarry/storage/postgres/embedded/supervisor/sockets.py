"""A private directory for the socket whose path is short enough."""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from .layout import Layout, socket_file
from .report import StartError

# sun_path on Linux has 108 bytes including the terminating zero; libpq splits host names at commas.
LONGEST = 107
SHARED_PLACES = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 (mkdtemp makes a private directory in it)


def prepare(layout: Layout, runtime_dir: Path | None) -> Path:
    """An empty directory of mode 0700 owned by this user: in the data directory, or at a short path recorded there."""
    if _fits(layout.socket_dir):
        layout.socket_dir.mkdir(mode=0o700, exist_ok=True)
        chosen = layout.socket_dir
    else:
        chosen = _noted(layout) or _make_short(layout, runtime_dir)
    if not _is_private(chosen):
        raise StartError(
            f"{chosen} is not a directory of uid {os.geteuid()} with mode 0700. Remove it and start again."
        )
    # Left by a killed server. Its pid may have been reused, and PostgreSQL would then refuse to start.
    for left in chosen.iterdir():
        left.unlink()
    return chosen


def discard(layout: Layout, socket_dir: Path) -> None:
    """Leave nothing behind in shared locations."""
    if socket_dir != layout.socket_dir:
        layout.short_socket_dir.unlink(missing_ok=True)
        shutil.rmtree(socket_dir, ignore_errors=True)


def _fits(folder: Path) -> bool:
    path = str(socket_file(folder))
    return len(os.fsencode(path)) <= LONGEST and "," not in path


def _noted(layout: Layout) -> Path | None:
    """The recorded directory, which may still be in the DSN of processes, if it exists and is still private."""
    try:
        noted = Path(layout.short_socket_dir.read_text())
    except FileNotFoundError:
        return None
    return noted if _is_private(noted) and _fits(noted) else None


def _make_short(layout: Layout, runtime_dir: Path | None) -> Path:
    for place in (runtime_dir, *SHARED_PLACES):
        # Measured with the suffix of mkdtemp; a location that is not writable is skipped.
        if place is None or not _fits(place / "tarry-12345678"):
            continue
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix="tarry-", dir=place))
            layout.short_socket_dir.write_text(str(made))
            return made
    raise StartError(
        f"The path of {layout.socket_dir} does not fit a socket (more than {LONGEST} bytes, or a comma in it), and no "
        "shorter directory can be made in XDG_RUNTIME_DIR or /tmp. Choose a shorter TARRY_HOME."
    )


def _is_private(folder: Path) -> bool:
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) == 0o700
