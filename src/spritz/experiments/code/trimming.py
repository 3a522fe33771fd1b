"""Removal of a checkout's unchanged files once its run has ended: the store has them, and each costs an inode.

What the run wrote or changed stays, and so does what links lead to. `snapshot.checkout_lines` puts the files back if
the run goes on after all. CHECKOUT-removed.txt says what happened; it is CHECKOUT-removed.part while files are removed,
so that they are also put back if that is cut short.

Jobs do it at their end, with bash and git alone, and `spritz space --trim` for jobs that were killed.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from spritz.experiments.code import snapshot

#: Appended to the checkout's path.
DONE = "-removed.txt"
BEGUN = "-removed.part"
#: Names of files that the run itself had removed, or put behind a link, which are not put back; only if there are any.
GONE = "-removed.gone"

#: git compares contents, since the new index knows no times. It takes files behind a link for deleted ones.
_FUNCTION = """\
trim() {{ # $1: a checkout, $2: its tree
    [ -e "$1/.git-snapshot-done" ] && [ ! -e "$1{done}" ] || return 0
    local store={store} scratch
    scratch=$(mktemp -d) || return 0
    (
        set -o pipefail
        git() {{ GIT_INDEX_FILE=$scratch/index command git --git-dir="$store" --work-tree=. {plain} "$@"; }}
        cd "$1" && git read-tree "$2" || exit
        git update-index -q --refresh
        if [ ! -e "$1{begun}" ]; then  # else some are gone by the removal that was cut short
            git diff-files -z --name-only --diff-filter=D > "$scratch/gone" || exit
            rm -f "$1{gone}"
            [ ! -s "$scratch/gone" ] || cp "$scratch/gone" "$1{gone}" || {{ rm -f "$1{gone}"; exit; }}
        fi
        git diff-files -z --name-only | git update-index -z --force-remove --stdin || exit
        git ls-files -z > "$scratch/same" || exit
        if [ -s "$scratch/same" ]; then
            xargs -0 dirname -z -- < "$scratch/same" | sort -zu > "$scratch/folders" || exit
            : > "$1{begun}" || exit  # no text yet, which a full file system has no room for
            xargs -0 rm -f -- < "$scratch/same"
            sed -z 's|$|/__pycache__|' "$scratch/folders" | xargs -0 rm -rf --
            grep -zvx . "$scratch/folders" | xargs -0 -r rmdir -p --ignore-fail-on-non-empty --
        fi
        printf '%s\\n' "The files of $1 that were the same as in the run's snapshot were removed at its end." \\
            "This puts all of them into DIRECTORY: git --git-dir='$store' archive $2 | tar -x -C DIRECTORY" \\
            > "$1{begun}"
        mv "$1{begun}" "$1{done}"
    ) > /dev/null 2>&1
    rm -rf "$scratch"
}}
"""


def function(store: Path) -> str:
    """The function `trim` of the shell, which never fails."""
    return _FUNCTION.format(
        store=shlex.quote(str(store)), plain=snapshot.plain_words(), done=DONE, begun=BEGUN, gone=GONE
    )


def trim(store: Path, tree: str, checkout: Path) -> None:
    """Remove the unchanged files; does nothing if there is no checkout, or no such tree."""
    line = f"{function(store)}\ntrim {shlex.quote(str(checkout))} {tree}\n"
    subprocess.run(["bash", "-c", line], check=False, stdin=subprocess.DEVNULL)


def is_whole(checkout: Path) -> bool:
    """Whether there is a checkout that has not been trimmed."""
    return (checkout / snapshot.MARK).exists() and not checkout.with_name(f"{checkout.name}{DONE}").exists()
