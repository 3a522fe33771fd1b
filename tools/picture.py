"""`docs/images/session.svg`: a real session on a small cluster, as the README shows it (`python -m tools.picture`).

Not made by `make docs`: it has times in it, so it would change whenever it is made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "session.svg"

#: what is typed, and what is done before it without being shown
SESSION = (
    ("spritz up --nodes 2 --cpus 16 --memory 64G --gpus 4 --gpu-type h100", ""),
    ("sbatch --gpus=h100:2 --wrap 'echo trained on $CUDA_VISIBLE_DEVICES'", 'eval "$(spritz env)"'),
    ("cat slurm-1.out", "until [ -s slurm-1.out ]; do sleep 0.1; done"),
    ("sbatch -J eval --gpus=2 --time=10 --wrap 'python eval.py'", "sbatch -N2 --gpus-per-node=4 -t 240 --wrap yes"),
    ("scontrol explain 3", "until squeue -hj 3 -o %r | grep -q Resources; do sleep 0.1; done"),
)  # fmt: skip


def main() -> int:
    """0 when the picture is there."""
    console = Console(record=True, width=104, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as directory:
        script = "".join(
            f"{{ {before or ':'}; }} >/dev/null 2>&1\n{shown}\nprintf '\\0'\n" for shown, before in SESSION
        )
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": directory,
            "COLUMNS": "102",
            "LC_ALL": "C.UTF-8",
            "USER": os.environ.get("USER", "root"),
        }
        done = subprocess.run(["bash", "-c", f"{script}\nspritz down >/dev/null"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=directory, env=environment, check=True)  # fmt: skip
        for (shown, _), output in zip(SESSION, done.stdout.split("\0"), strict=False):
            console.print(Text.assemble(("$ ", "bold green"), (shown, "bold")))
            console.print(Text(output.replace(directory, "~").rstrip("\n")))
    svg = console.export_svg(title="spritz")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing is loaded from outside
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
