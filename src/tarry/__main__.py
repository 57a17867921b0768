"""Entry point of `python -m tarry`, the same as `tarry`."""

import sys

from tarry.edges.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
