"""A contract type for import-linter: `forbidden`, for packages that need not exist yet.

The plain type stops with an error when a package named in it is missing, so rules could only be written after the
packages they are about. This one leaves missing packages out, and holds from the commit in which a package appears.
"""

from __future__ import annotations

from typing import Any

from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.contract import ContractCheck


class ForbiddenForPackages(ForbiddenContract):
    """As `forbidden`; modules of ours that are not in the import graph are skipped."""

    type_name = "forbidden_for_packages"

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Check the packages that exist; a contract about none of them is kept."""
        fields: Any = self  # import-linter fills the declared fields with plain sets of expressions
        fields.source_modules = {package for package in fields.source_modules if package.expression in graph.modules}
        fields.forbidden_modules = {
            package
            for package in fields.forbidden_modules
            if package.expression in graph.modules or not package.expression.startswith("spritz.")
        }
        return super().check(graph, verbose)
