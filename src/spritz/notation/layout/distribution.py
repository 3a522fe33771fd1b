"""Task distribution: `block:cyclic:fcyclic`, `plane=4`, `arbitrary`, `*`, with `Pack` or `NoPack`.

Source: srun(1) --distribution; `verify_dist_type`.
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

_METHODS = ("block", "cyclic", "fcyclic")
_INVALID = "Invalid --distribution specification"


class DistributionError(NotationError):
    """The text is not a distribution. `detail` is the line that Slurm prints before the message, if any."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Distribution(Value):
    """How tasks go over nodes, sockets and cores; "" is the default of a level.

    `plane_size`: tasks at a time for `plane`. `pack`: fill one node after another (True), spread (False), or as
    configured (None).
    """

    __slots__ = ("cores", "nodes", "pack", "plane_size", "sockets")

    def __init__(
        self, nodes: str = "", sockets: str = "", cores: str = "", plane_size: int = 0, pack: bool | None = None
    ) -> None:
        self.nodes = nodes
        self.sockets = sockets
        self.cores = cores
        self.plane_size = plane_size
        self.pack = pack


def parse(text: str) -> Distribution:
    """The distribution that `text` names. Raises DistributionError with Slurm's words."""
    main, *options = text.split(",", 2)
    if main.lower() in ("pack", "nopack") and not options:
        main, options = "", [main]
    pack: bool | None = None
    if options:
        if len(options) > 1 or options[0].lower() not in ("pack", "nopack"):
            raise DistributionError(f"{_INVALID}: {shown(text)}")
        pack = options[0].lower() == "pack"
    if not main and not (options and pack is not None and text[:1] != ","):
        raise DistributionError(f"{_INVALID}: {shown(text)}")
    lowered = main.lower() if len(main) < 64 else "?"
    if lowered.startswith("plane"):
        size = unsigned(lowered[6:], 0x7FFFFFFF) if lowered[5:6] == "=" else None
        if not size:
            raise DistributionError(f"{_INVALID}: {shown(text)}", "Invalid plane size or size not specified")
        return Distribution("plane", plane_size=size, pack=pack)
    if lowered == "arbitrary":
        return Distribution("arbitrary", pack=pack)
    levels = lowered.split(":", 3) if lowered else []
    if len(levels) > 3:
        raise DistributionError(f"{_INVALID}: {shown(text)}")
    chosen = ["" if level in ("*", "") else level for level in levels] + ["", "", ""]
    if chosen[0] == "fcyclic" or any(level and level not in _METHODS for level in chosen):
        raise DistributionError(f"{_INVALID}: {shown(text)}")
    return Distribution(chosen[0], chosen[1], chosen[2], pack=pack)


def without_stars(text: str) -> str:
    """The text with the `*` of each level replaced, as Slurm gives it to tasks.

    The first level becomes `block`, the second `cyclic`, the third that of the second.
    """
    levels, comma, option = text.partition(",")
    if "*" not in levels:
        return text
    chosen: list[str] = []
    for number, level in enumerate(levels.split(":")):
        default = ("block", "cyclic", chosen[-1] if chosen else "")[number]
        chosen.append(default if level == "*" else level)
    return ":".join(chosen) + comma + option


def format(distribution: Distribution) -> str:
    """The text of SLURM_DISTRIBUTION: `block:cyclic`, `plane` (the size is SLURM_DIST_PLANESIZE), `cyclic,Pack`."""
    levels = [distribution.nodes, distribution.sockets, distribution.cores]
    while levels and not levels[-1]:
        levels.pop()
    text = ":".join(level or "*" for level in levels)
    if distribution.pack is None:
        return text
    word = "Pack" if distribution.pack else "NoPack"
    return f"{text},{word}" if text else word
