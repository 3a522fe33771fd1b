"""A contract type for import-linter: `forbidden`, for rooms that need not exist yet.

The plain type stops with an error when a room named in it is missing, so rules could only be written after the rooms
they are about. This one leaves missing rooms out, and holds from the commit in which a room appears.
"""

from __future__ import annotations

from typing import Any

from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.contract import ContractCheck


class ForbiddenForRooms(ForbiddenContract):
    """As `forbidden`; modules of ours that are not in the import graph are skipped."""

    type_name = "forbidden_for_rooms"

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Check the rooms that exist; a contract about none of them is kept."""
        fields: Any = self  # import-linter fills the declared fields with plain sets of expressions
        fields.source_modules = {room for room in fields.source_modules if room.expression in graph.modules}
        fields.forbidden_modules = {
            room
            for room in fields.forbidden_modules
            if room.expression in graph.modules or not room.expression.startswith("spritz.")
        }
        return super().check(graph, verbose)
