"""The wheel, installed into an environment of its own without Node, serves every page's assets."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "src" / "tarry" / "edges" / "dashboard" / "static"
_BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
_SERVE = """
import asyncio, hashlib, json, re, shutil, sys
import httpx, tarry
from tarry.dashboard import create_dashboard
from tarry.testing import async_memory_app

async def main():
    app = async_memory_app()
    await app.queues.create("orders")
    transport = httpx.ASGITransport(create_dashboard(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        pages = {path: await client.get(path) for path in ("/", "/queues", "/messages", "/schedules")}
        files = {name: await client.get(f"/static/{name}") for name in sys.argv[1:]}
    print(json.dumps({
        "package": tarry.__file__,
        "node": shutil.which("node"),
        "statuses": {path: page.status_code for path, page in pages.items()},
        "linked": sorted({name for page in pages.values() for name in re.findall(r"/static/([^?\\"]+)", page.text)}),
        "served": {name: hashlib.sha384(file.content).hexdigest() for name, file in files.items()},
    }))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, which finds its dependencies in the environment of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", _BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    home = folder / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    wheel = folder / built.stdout.split()[-1]
    command = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--python",
        str(python),
        "install",
        "--no-index",
        "--no-deps",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # A path in a .pth file is searched after the wheel, and its own .pth files, such as that of this checkout, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_installed_wheel_serves_every_asset_without_node(installed: Path) -> None:
    files = {str(path.relative_to(STATIC)): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()}
    served = subprocess.run(
        [str(installed), "-c", _SERVE, *files],
        check=True,
        capture_output=True,
        text=True,
        cwd=installed.parent,
        env={"PATH": str(installed.parent)},
    )
    result = json.loads(served.stdout)
    assert Path(result["package"]).is_relative_to(installed.parents[1]), "the checkout was imported, not the wheel"
    assert result["node"] is None
    assert set(result["statuses"].values()) == {200}
    assert set(result["linked"]) <= files.keys()
    assert {"dashboard.css", "live.js"} <= set(result["linked"])
    assert result["served"] == {name: hashlib.sha384(content).hexdigest() for name, content in files.items()}
    assert not [name for name in files if re.search(r"\.(ts|map)$", name)]
