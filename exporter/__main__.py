"""`python -m exporter` is `hermes-exporter`."""

from __future__ import annotations

import sys

from exporter.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
