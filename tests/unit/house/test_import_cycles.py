"""Modules import in one direction at run time, so that each can be read after those that it builds on.

`.importlinter` has the stricter rule for what lies side by side in a folder, types included. This one is about packages
and the modules in them, too.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("spritz", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError("a cycle of imports: " + " <- ".join(error.args[1])) from None
