"""The contenders, how each is installed, and the processes that run them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from benchmarks.measure import process_cpu_s

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / "build" / "peers"
ADAPTERS = Path(__file__).parent / "adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """What a benchmark installs, below `build/peers`."""

    folder: str = ""
    python: Sequence[str]
    node: Sequence[str]


PEERS = Packages(
    python=(
        "pgqueuer==1.6.0",
        "procrastinate==3.10.0",
        "asyncpg==0.32.0",
        "greenstalk==2.1.1",
        "psycopg[binary,pool]==3.3.*",
    ),
    node=("graphile-worker@0.18.0", "pg-boss@10.4.2"),  # pg-boss 10: its later versions need Node.js 22
)
CALL_WITHIN_S = 180.0
"""A contender that takes longer for one call is ended: a run must not wait for it without limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    command: Sequence[str]
    missing: str | None = None
    """Why it cannot be measured here."""
    whole: bool = False
    """It is measured beside as many messages as the plan has, however long it takes to store them."""

    @property
    def slug(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in self.name.lower())


def contenders(pgmq: Path | None, pgque: Path | None) -> list[Contender]:
    python, node, peers = sys.executable, shutil.which("node"), str(HOME / "venv" / "bin" / "python")
    agent = ("-m", "benchmarks.peers.adapters.agent")
    no_node = None if node else "Node.js is not installed"
    mjs = (node or "node", str(HOME / "node" / "agent.mjs"))
    fetch = "give its SQL file: --{}"
    return [
        Contender(name="Tarry", command=(python, *agent, "tarry_library", "events")),
        Contender(name="Tarry, journal off", command=(python, *agent, "tarry_library", "off")),
        Contender(name="Tarry over HTTP", command=(python, *agent, "tarry_broker")),
        Contender(name="originals' SQL", command=(python, *agent, "originals")),
        Contender(name="PgQueuer", command=(peers, *agent, "pgqueuer_queue")),
        Contender(name="Procrastinate", command=(peers, *agent, "procrastinate_queue")),
        Contender(name="graphile-worker", command=(*mjs, "./graphile_worker.mjs"), missing=no_node),
        Contender(name="pg-boss", command=(*mjs, "./pg_boss.mjs"), missing=no_node),
        Contender(
            name="pgmq",
            command=(python, *agent, "sql_queue", "pgmq", str(pgmq)),
            missing=None if pgmq else fetch.format("pgmq"),
        ),
        Contender(
            name="PgQue",
            command=(python, *agent, "sql_queue", "pgque", str(pgque)),
            missing=None if pgque else fetch.format("pgque"),
        ),
        Contender(
            name="beanstalkd",
            command=(peers, *agent, "beanstalkd"),
            missing=None if shutil.which("beanstalkd") else "beanstalkd is not installed (apt-get install beanstalkd)",
        ),
    ]


def install(packages: Packages = PEERS) -> None:
    """Peers go into an environment and a folder of their own below `build/peers`, once."""
    home = HOME / packages.folder
    required = json.dumps([*packages.python, *packages.node])
    stamp = home / "installed.json"
    if not (stamp.exists() and stamp.read_text() == required):
        home.mkdir(parents=True, exist_ok=True)
        print(f"Installing the peers into {home.relative_to(ROOT)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home / "venv")], check=True)
        pip = [str(home / "venv" / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *packages.python], check=True)
        if npm := shutil.which("npm"):
            (home / "node").mkdir(exist_ok=True)
            (home / "node" / "package.json").write_text('{"private": true, "type": "module"}')
            subprocess.run(
                [npm, "install", "--silent", "--no-audit", "--no-fund", *packages.node], cwd=home / "node", check=True
            )
        stamp.write_text(required)
    if (home / "node").exists():  # beside node_modules, where Node.js looks for packages
        for file in ADAPTERS.glob("*.mjs"):
            shutil.copy(file, home / "node" / file.name)


class Unsupported(Exception):
    """A contender cannot do what a scenario needs; the text has the reason."""


class Agent:
    """One process of a contender, driven by one JSON object per line."""

    def __init__(self, contender: Contender, dsn: str, log: Path, **options: Any) -> None:
        """Start it; `opened` waits for it, so that several start at the same time."""
        self.contender = contender
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            contender.command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(),
        )
        self._pids = [self._process.pid]
        self.shared: dict[str, Any] = {}
        """What other consumers of the same contender need to open: the address of a broker."""
        self.send("open", dsn=_url(dsn), **options)

    def opened(self) -> Self:
        try:
            result = self.receive()
        except Unsupported:
            self.kill()
            raise
        self._pids += result.get("pids", [])
        self.shared = result.get("shared", {})
        return self

    def send(self, call: str, **request: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, **request}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Unsupported("its process has ended: see the log in build/peers") from None

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], CALL_WITHIN_S)[0]:
            if self.contender.command[1] == "-m":  # an adapter in Python prints its tasks
                self._process.send_signal(signal.SIGUSR1)
                time.sleep(1)
            self._process.kill()
            raise Unsupported(f"no result within {CALL_WITHIN_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Unsupported("its process has ended: see the log in build/peers")
        result = json.loads(line)
        if reason := result.get("unsupported"):
            raise Unsupported(reason)
        return result

    def call(self, call: str, **request: Any) -> dict[str, Any]:
        self.send(call, **request)
        return self.receive()

    def cpu_s(self) -> float:
        """Of all threads of its processes, a broker or server of its own included."""
        return sum(process_cpu_s(pid) for pid in self._pids)

    def memory_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in self._pids)

    def kill(self) -> None:
        self._process.kill()
        self._leave()

    def close(self) -> None:
        with suppress(Unsupported, OSError, ValueError):
            self.call("close")
        self._leave()

    def _leave(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def _url(dsn: str) -> str:
    """As a URL, which every driver understands."""
    if "://" in dsn:
        return dsn
    parts = conninfo_to_dict(dsn)
    query = urlencode({name: value for name, value in parts.items() if name in ("host", "port")})
    user = ":".join(quote(str(parts[name])) for name in ("user", "password") if parts.get(name))
    return f"postgresql://{user}@/{parts['dbname']}?{query}"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "TARRY_"))}


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
