"""`python -m spritz.stepd FD [user-namespace]` is the zygote (`stepd.zygote`).

It has msgspec's core alone, since forks copy what it holds.
"""

from __future__ import annotations

import sys

from spritz.lean import load_msgspec

load_msgspec()

from spritz.stepd.zygote import main  # noqa: E402  msgspec must be loaded first

if __name__ == "__main__":
    main(int(sys.argv[1]), user_namespace=len(sys.argv) > 2)
