"""`docs/compatibility/`: whether scripts, configurations and clients that were made for Slurm work.

The pages are made of the very tables that the commands parse and print with, so that they cannot promise what is not
there, and of the differences that the comparison with a real Slurm sets aside.

`entries` reads the tables; `pages` writes the pages; `text` has tables and anchors of Markdown.
"""

from __future__ import annotations

from tools.compatibility.pages import PAGES

__all__ = ["PAGES"]
