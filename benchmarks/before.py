"""The source tree of an earlier commit, for "× before" within one run: both trees take turns on the same server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.contenders.protocol import Unavailable
from benchmarks.server import BUILD

ROOT = BUILD.parent
BEFORE = "7cac7b4"
"""The commit of the column "now" of the targets, and of the profile that led to them (2026-11-16)."""
NOT_SHIPPED = ("uvloop", "httptools")
"""Packages of today's environment that the earlier commit did not install: its broker must not find them."""


def tree_of(revision: str) -> Path:
    """Its `src` below `build/before`, without a change of this checkout."""
    sha = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    tree = BUILD / "before" / sha[:10]
    if not tree.exists():
        tree.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=_git("archive", sha, "src"), check=True)
        (tree / "absent").mkdir()
        for name in NOT_SHIPPED:
            (tree / "absent" / f"{name}.py").write_text(
                f'raise ImportError("{name} was not installed with this commit")\n'
            )
    return tree


def environment(tree: Path) -> dict[str, str]:
    """For a process that imports Tarry from there."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([f"{tree}/src", f"{tree}/absent"])}


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode().strip() or "no such commit in this checkout"
        raise Unavailable(f"git {' '.join(arguments)}: {reason}")
    return done.stdout
