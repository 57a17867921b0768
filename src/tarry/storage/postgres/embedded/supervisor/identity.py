"""Assumes an account that PostgreSQL accepts; creates no account, changes no file outside of the data directory.

PostgreSQL refuses root. Root therefore enters a user namespace in which its own id has another number: files stay owned
by root, and no other account is involved. Where that is refused (most containers), an existing unprivileged account is
used and becomes the owner of the data directory. A directory that already belongs to another account is served as that
account.
"""

import ctypes
import os
import pwd
from collections.abc import Callable
from pathlib import Path

from .layout import StartError

CLONE_NEWUSER = 0x10000000
ACCOUNTS = ("tarry", "postgres", "nobody")
# Names for the own uid inside of the namespace, since initdb needs one; "nobody" last, as it also stands for unmapped
# uids.
KNOWN_NAMES = ("daemon", "bin", "postgres", "nobody")
OTHER_HOME = "Set TARRY_HOME (or data_dir=) to a directory it can reach, such as /var/lib/tarry"


def assume(home: Path, postgres: Path) -> None:
    """Assume the account permanently: there is no way back to root."""
    uid = os.geteuid()
    if uid == 0:
        owner = home.stat()
        if owner.st_uid != 0:
            _become(owner.st_uid, owner.st_gid)
        elif namespaces_allowed():
            _enter_namespace()
        else:
            _become_account(home, postgres)
    elif _entry(uid) is None:
        # initdb looks up its user and fails if there is none, as with the arbitrary user ids of some clusters.
        if not namespaces_allowed():
            raise StartError(
                f"uid {uid} has no entry in /etc/passwd, which initdb requires, and user namespaces are refused. "
                "Add an entry for it, or set TARRY_DSN to another server."
            )
        _enter_namespace()
    _check_reach(home, postgres)


def namespaces_allowed() -> bool:
    """Tested in a child process: some systems allow the first step and refuse a later one."""
    return _in_child(_enter_namespace)


def _enter_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    known = next(entry for name in KNOWN_NAMES if (entry := _entry(name)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    # Kernel rule: an unprivileged process must disable setgroups before it maps a group.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{known.pw_uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{known.pw_gid} {gid} 1")


def _become_account(home: Path, postgres: Path) -> None:
    account = next((entry for name in ACCOUNTS if (entry := _entry(name))), None)
    if account is None:
        raise StartError(
            "PostgreSQL does not run as root, user namespaces are refused here, and none of the accounts "
            f"{', '.join(ACCOUNTS)} exists. Run as another user, or set TARRY_DSN to another server."
        )

    def check_access() -> None:
        _become(account.pw_uid, account.pw_gid)
        if not os.access(home.parent, os.X_OK) or not os.access(postgres, os.R_OK | os.X_OK):
            raise PermissionError

    # Checked before the ownership is changed.
    if not _in_child(check_access):
        raise StartError(
            "PostgreSQL does not run as root, user namespaces are refused here, and the account "
            f"{account.pw_name!r} cannot reach {home} or {postgres}: it may not enter a directory of the path. "
            f"{OTHER_HOME}, and install Python packages where every account may read them."
        )
    _give(home, account.pw_uid, account.pw_gid)
    _become(account.pw_uid, account.pw_gid)


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _give(home: Path, uid: int, gid: int) -> None:
    """Chown the content, then the directory itself: if interrupted, root still owns it and this is repeated."""
    for _, folders, files, folder in os.fwalk(home, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
    os.chown(home, uid, gid)


def _check_reach(home: Path, postgres: Path) -> None:
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise StartError(
            f"PostgreSQL runs without root's privileges, and without them it cannot write to {home}: it may not enter "
            f"it or a directory of its path. {OTHER_HOME}."
        )
    if not os.access(postgres, os.R_OK | os.X_OK):
        raise StartError(
            f"PostgreSQL runs without root's privileges, and without them it cannot execute {postgres}. Install that "
            "package where every account may read it, choose other binaries=, or set TARRY_DSN to another server."
        )


def _entry(account: str | int) -> pwd.struct_passwd | None:
    """The entry in /etc/passwd of a name or a uid."""
    try:
        return pwd.getpwnam(account) if isinstance(account, str) else pwd.getpwuid(account)
    except KeyError:
        return None


def _in_child(step: Callable[[], None]) -> bool:
    """Whether a step succeeds, tested in a child process: for steps that cannot be undone."""
    child = os.fork()
    if child == 0:
        try:
            step()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
