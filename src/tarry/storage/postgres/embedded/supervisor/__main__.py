"""Entry point of the supervisor, run as a file by a bare interpreter (`python -I -S`): small and quick."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Appended, so that no file here shadows a module of the standard library.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    importlib.import_module("supervisor.run").main(sys.argv[1:])
