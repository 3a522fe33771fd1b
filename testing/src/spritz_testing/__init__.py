"""What tests of Spritz stand on, as a distribution of its own (`pip install ./testing`).

`builders`    a small cluster around a `Machine`, driven by hand; `history`: accounting's events by the thousand
`conversation`  conversations as text files, with `--bless`; `transcript`: with the core; `rendering` writes what came
`relaying`    two connections made one
`memory_journal`  the controller's journal in memory
`studies`     models of published scheduling studies: `spritz simulate` without `--config`
`projections` what the scheduler's projection says, to compare one that followed with one built from the records
`kubernetes`  a Kubernetes API, with which the operator can be tried: `python -m spritz_testing.kubernetes`
`kubelet`     nodes for a real control plane: `python -m spritz_testing.kubelet --kubeconfig FILE`
`daemons`     the real daemons under faults on virtual time: `python -m spritz_testing.daemons`
"""

__version__ = "0.2.0.dev0"
