"""`python -m spritz.stepd FD [user-namespace]` is the zygote (`stepd.zygote`)."""

from __future__ import annotations

import sys

from spritz.stepd.zygote import main

if __name__ == "__main__":
    main(int(sys.argv[1]), user_namespace=len(sys.argv) > 2)
