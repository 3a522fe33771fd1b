"""Accounting in a simulated cluster: the real slurmdbd over a real SQLite file, both on virtual time.

Map
---
`database`   the file on its host, and the connections to it: how long statements take, how they fail, what a kill or a
             power cut leaves
`daemon`     the slurmdbd process, its slurmdbd.conf, and the lines of slurm.conf
`policy`     accounts, users, associations and QOS, made by requests as sacctmgr makes them; the same limits for checks
`faults`     what can go wrong, as calls for an injector
`whole_journal`   what a controller's journal has pruned: with the rest it says which rows the tables must have
`records`    the records as sacct and sreport are told them, and what the history says that they must be
`client`     sacctmgr, sacct and sreport, by the requests that they send
"""

from spritz_testing.daemons import seam
from spritz_testing.daemons.accounting import whole_journal
from spritz_testing.daemons.accounting.daemon import SLURM_CONF, Accounting

__all__ = ["SLURM_CONF", "Accounting"]

seam.NAMES.append(whole_journal.names)
