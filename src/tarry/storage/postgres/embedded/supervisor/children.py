"""Starts programs that do not outlive the supervisor. The supervisor has one thread, which makes plain fork safe."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Outside of any user directory, so that none is kept busy.
ROOM = "/"


def spawn(argv: list[str], *, log: int, inherit: int, on_our_death: signal.Signals, text: bytes = b"") -> int:
    """Start a program that logs to `log`, inherits the descriptor `inherit` and reads `text` (a few bytes). Returns its
    pid.
    """
    parent = os.getpid()
    source, feed = os.pipe()
    os.write(feed, text)
    os.close(feed)
    child = os.fork()
    if child != 0:
        os.close(source)
        return child
    try:
        die_with(parent, on_our_death)
        for inner, outer in ((0, source), (1, log), (2, log)):
            os.dup2(outer, inner)
        os.set_inheritable(inherit, True)
        # Python ignores these two signals, and a program inherits ignored signals.
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        os.chdir(ROOM)
        os.execv(argv[0], argv)  # noqa: S606
    except BaseException as error:
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def run(argv: list[str], *, log: int, inherit: int, text: bytes = b"") -> int:
    """The exit status of a program that ends by itself."""
    child = spawn(argv, log=log, inherit=inherit, on_our_death=signal.SIGTERM, text=text)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_with(parent: int, death: signal.Signals) -> None:
    """Signal this process when its parent dies. Linux only; elsewhere the next supervisor finds and stops leftovers."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death))
        if os.getppid() != parent:
            os._exit(1)


def runs(pid: int, argument: Path) -> bool:
    """Whether the process was started with this argument: the pid alone may have been reused."""
    try:
        return os.fsencode(argument) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
