"""PostgreSQL's files, socket directory and processes, from leftovers of an earlier run to the shutdown."""

import contextlib
import ctypes
import fcntl
import locale
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from .layout import DATABASE, PAUSE_FOR, PORT, SUPERUSER, Layout, StartError, acquire, open_lock, socket_file

# Time limit for the shutdown checkpoint; after it an immediate shutdown follows, and the next start replays the WAL.
STOP_FOR = 60.0
PR_SET_PDEATHSIG = 1
# sun_path on Linux has 108 bytes including the terminating zero; libpq splits host names at commas.
LONGEST_SOCKET_PATH = 107
SHARED_FOLDERS = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 (mkdtemp makes a private directory in it)

# The directory of the socket controls access: only users that can enter it can connect, so `trust` suffices. (`peer`
# would compare account names across the namespace, where they differ.)
ACCESS = "local all all trust\n"

# Sizes and display: may be changed with ALTER SYSTEM.
TUNING = """
# Tarry's embedded server
shared_buffers = '128MB'
max_connections = 200
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
"""

# Guaranteed settings: on the command line, where ALTER SYSTEM cannot change them. (A session still chooses its own
# synchronous_commit.)
GUARANTEED = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}


def claim_server(layout: Layout) -> int:
    """Acquire the server lock, which proves that no process of an earlier run is left; signal the remaining ones."""
    server_lock = open_lock(layout.server_lock)
    signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    for signal_number in signals:
        if acquire(server_lock, fcntl.LOCK_EX, deadline=0):
            break
        # Usually it is already stopping, because its supervisor died. Backends of a killed server end by themselves.
        pid = _pid_file(layout)[0]
        if pid.isdigit() and _has_argument(int(pid), layout.pgdata):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal_number)
        if acquire(server_lock, fcntl.LOCK_EX, deadline=time.monotonic() + STOP_FOR / len(signals)):
            break
    else:
        raise StartError(
            f"Processes of an earlier PostgreSQL in {layout.home} do not end. Find them with "
            f"fuser {layout.server_lock}, stop them with kill -QUIT, and start again."
        )
    # The pid in it may have been reused, and PostgreSQL would take that process for a running server.
    layout.postmaster_pid.unlink(missing_ok=True)
    return server_lock


def ensure_files(layout: Layout, binaries: Path, major: int, *, log: int, server_lock: int) -> None:
    """Create the files in a draft directory and rename it when complete: an interrupted attempt is never used."""
    if layout.pgdata.exists():
        return
    for unfinished in layout.home.glob("pgdata.new-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix="pgdata.new-", dir=layout.home))

    def run(program: str, *arguments: str, text: bytes = b"") -> None:
        argv = [str(binaries / program), *arguments]
        pipe = subprocess.PIPE
        with _started(argv, log=log, inherit=server_lock, on_our_death=signal.SIGTERM, stdin=pipe) as child:
            child.communicate(text)
        if child.returncode != 0:
            raise StartError(f"PostgreSQL's files could not be made: status {child.returncode} of {' '.join(argv)}")

    try:
        run(
            *("initdb", "-D", str(draft), f"--username={SUPERUSER}", "--auth=trust", "--encoding=UTF8"),
            *(*_locale_options(major), "--data-checksums", "--no-sync", "--no-instructions"),
        )
        (draft / "pg_hba.conf").write_text(ACCESS)
        with (draft / "postgresql.conf").open("a") as conf:
            conf.write(TUNING)
        # Single-user mode reads statements from standard input: this needs no listener and no client program.
        single_user = ("postgres", "--single", "-D", str(draft), "-c", "exit_on_error=on", "-c", "fsync=off")
        run(*single_user, "template1", text=f"create database {DATABASE}\n".encode())
        # Once, at the end, instead of after every step.
        run("initdb", "-D", str(draft), "--sync-only")
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    draft.rename(layout.pgdata)
    descriptor = os.open(layout.home, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def _locale_options(major: int) -> list[str]:
    """Sort by code point, the same on every machine; letters beyond ASCII still have upper and lower case."""
    if major >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return ["--locale=C"]
    locale.setlocale(locale.LC_CTYPE, before)
    return ["--locale=C", "--lc-ctype=C.UTF-8"]


def prepare_socket_dir(layout: Layout, runtime_dir: Path | None) -> Path:
    """An empty directory of mode 0700 owned by this user: in the data directory, or at a short path recorded there."""
    if _fits(layout.socket_dir):
        layout.socket_dir.mkdir(mode=0o700, exist_ok=True)
        socket_dir = layout.socket_dir
    else:
        socket_dir = _recorded_socket_dir(layout) or _short_socket_dir(layout, runtime_dir)
    if not _is_private(socket_dir):
        raise StartError(
            f"{socket_dir} is not a directory of uid {os.geteuid()} with mode 0700. Remove it and start again."
        )
    # Left by a killed server. Its pid may have been reused, and PostgreSQL would then refuse to start.
    for leftover in socket_dir.iterdir():
        leftover.unlink()
    return socket_dir


def discard_socket_dir(layout: Layout, socket_dir: Path) -> None:
    """Leave nothing behind in shared locations."""
    if socket_dir != layout.socket_dir:
        layout.short_socket_dir.unlink(missing_ok=True)
        shutil.rmtree(socket_dir, ignore_errors=True)


def _fits(socket_dir: Path) -> bool:
    path = str(socket_file(socket_dir))
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH and "," not in path


def _recorded_socket_dir(layout: Layout) -> Path | None:
    """The recorded directory, which may still be in the DSN of processes, if it exists and is still private."""
    try:
        recorded = Path(layout.short_socket_dir.read_text())
    except FileNotFoundError:
        return None
    return recorded if _is_private(recorded) and _fits(recorded) else None


def _short_socket_dir(layout: Layout, runtime_dir: Path | None) -> Path:
    for folder in (runtime_dir, *SHARED_FOLDERS):
        # Measured with the suffix of mkdtemp; a location that is not writable is skipped.
        if folder is None or not _fits(folder / "tarry-12345678"):
            continue
        with contextlib.suppress(OSError):
            socket_dir = Path(tempfile.mkdtemp(prefix="tarry-", dir=folder))
            layout.short_socket_dir.write_text(str(socket_dir))
            return socket_dir
    raise StartError(
        f"The path of {layout.socket_dir} does not fit a socket (more than {LONGEST_SOCKET_PATH} bytes, or a comma), "
        "and no shorter directory can be made in XDG_RUNTIME_DIR or /tmp. Choose a shorter TARRY_HOME."
    )


def _is_private(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700


def launch(layout: Layout, binaries: Path, socket_dir: Path, *, log: int, server_lock: int) -> subprocess.Popen[bytes]:
    """Start PostgreSQL. It shuts down if the supervisor dies, so it is never unsupervised."""
    settings = GUARANTEED | {"unix_socket_directories": str(socket_dir)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    argv = [str(binaries / "postgres"), "-D", str(layout.pgdata), *options]
    return _started(argv, log=log, inherit=server_lock, on_our_death=signal.SIGINT)


def await_ready(layout: Layout, pid: int) -> None:
    """Wait without a time limit: WAL replay after a crash makes progress and finishes."""
    # Line 1 of PostgreSQL's pid file is the pid, line 8 the status.
    while len(lines := _pid_file(layout)) < 8 or lines[0] != str(pid) or lines[7].strip() != "ready":
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            raise StartError(f"PostgreSQL in {layout.home} ended with status {code} instead of starting.")
        time.sleep(PAUSE_FOR)


def stop(pid: int) -> None:
    """Fast shutdown, then immediate shutdown after a time limit. Neither loses committed data."""
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_FOR
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return
        time.sleep(PAUSE_FOR)
    os.kill(pid, signal.SIGQUIT)
    os.waitpid(pid, 0)


def _pid_file(layout: Layout) -> list[str]:
    try:
        return layout.postmaster_pid.read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return [""]


def _has_argument(pid: int, argument: Path) -> bool:
    """Whether the process was started with this argument: the pid alone may have been reused."""
    try:
        return os.fsencode(argument) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _started(
    argv: list[str], *, log: int, inherit: int, on_our_death: signal.Signals, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program that logs to `log` and inherits the descriptor `inherit`, outside of any user directory, so that none
    is kept busy. The supervisor has one thread, which makes `preexec_fn` safe."""
    parent = os.getpid()
    return subprocess.Popen(  # noqa: S603
        argv,
        stdin=stdin,
        stdout=log,
        stderr=log,
        pass_fds=[inherit],
        cwd="/",
        preexec_fn=lambda: die_with(parent, on_our_death),  # noqa: PLW1509
    )


def die_with(parent: int, death: signal.Signals) -> None:
    """Signal this process when its parent dies. Linux only; elsewhere the next supervisor finds and stops leftovers."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death))
        if os.getppid() != parent:
            os._exit(1)
