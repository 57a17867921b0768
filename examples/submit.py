"""The command line as a file, for spark-submit: `spark-submit --master … examples/submit.py pipeline run --lake …`."""

import sys

from tarry.edges.cli.main import main

sys.exit(main())
