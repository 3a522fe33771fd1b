"""Modules import in one direction at run time, so that each can be read after those that it builds on."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

#: Imports inside a function whose target seldom runs, and would be slow to import each time.
LAZY = {
    ("spritz.experiments.slurm", "spritz.experiments.refusals"),
}


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("spritz", exclude_type_checking_imports=True)
    imports = {
        module: {other for other in graph.find_modules_directly_imported_by(module) if (module, other) not in LAZY}
        for module in graph.modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError("a cycle of imports: " + " <- ".join(error.args[1])) from None
