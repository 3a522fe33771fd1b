"""What injects each kind of fault of `faults.KINDS`. Importing this package registers all of them.

`processes`, `machines`, `network`, `clocks`: what every cluster has; `accounting`: slurmdbd and its database;
`operators`: administrators; `standby`: several controllers and their database.
"""

from spritz_testing.daemons.injectors import accounting, clocks, machines, network, operators, processes, standby

__all__ = ["accounting", "clocks", "machines", "network", "operators", "processes", "standby"]
