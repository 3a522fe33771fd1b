"""`python -m spritz_testing.daemons`."""

from __future__ import annotations

import sys

from spritz_testing.daemons.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
