"""Certificates for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(directory: Path) -> Path:
    """Of localhost, signed by itself. Its key is in the file of the same name with `.key` after it."""
    file = directory / "localhost.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {file}.key -out {file}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return file
