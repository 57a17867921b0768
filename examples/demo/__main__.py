"""`make demo`: runs the demo on the embedded database, whatever the environment names."""

from __future__ import annotations

import argparse
import os
import sys

from examples.demo.story import run


def seconds_of(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Show Tarry at work on an embedded PostgreSQL.")
    default = os.environ.get("DEMO_SECONDS") or None
    parser.add_argument(
        "--seconds", type=seconds_of, default=default, help="about how long the first part takes; else DEMO_SECONDS"
    )
    return run(parser.parse_args(args).seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
