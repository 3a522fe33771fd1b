"""Records of accounting's policy: `sacctmgr` edits them, slurmdbd keeps them, and controllers cache them.

None or "" means not set. Limits of TRES are texts such as `cpu=4,gres/gpu=2` with memory in MiB; lists are
comma-separated texts. Times are minutes unless the name says otherwise.

Source: sacctmgr(1) SPECIFICATIONS FOR ASSOCIATIONS, QOS.
"""

from __future__ import annotations

from msgspec import Struct

#: Fairshare=parent
SHARES_PARENT = 0x7FFFFFFF


class Account(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """An account; its associations say where it stands in the tree."""

    name: str
    description: str = ""
    organization: str = ""


class User(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A user. `admin`: None, Operator or Administrator."""

    name: str
    admin: str = "None"
    default_wckey: str = ""


class Coordinator(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The user may add and change users of the account and of those below it."""

    account: str
    user: str


class WcKey(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A workload characterization key of one user on one cluster."""

    cluster: str
    name: str
    user: str
    #: assigned by slurmdbd
    id: int = 0


class Association(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One node of a cluster's tree: an account (`user` ""), or a user of it, perhaps in one partition only.

    Grp* limits apply to all associations below together, Max* to each user's association below that sets none itself.
    """

    id: int
    cluster: str
    account: str
    user: str = ""
    partition: str = ""
    #: the account above; "" for root and for users
    parent: str = ""
    shares: int = 1
    #: the user's default account on this cluster
    is_default: bool = False
    priority: int | None = None
    grp_jobs: int | None = None
    grp_submit: int | None = None
    grp_tres: str = ""
    max_jobs: int | None = None
    max_submit: int | None = None
    max_tres: str = ""
    max_tres_per_node: str = ""
    max_wall: int | None = None
    default_qos: str = ""
    #: names of the QOS that may be used; None: the parent's
    qos: str | None = None
    #: TRES that an account gets whenever it needs them, and lends to others until then
    guarantee: str = ""
    #: minutes that a job may keep what it has borrowed of the guarantee; None: the parent's value
    reclaim_after: int | None = None
    #: TRES minutes used up to now, and TRES minutes that running jobs may still use
    grp_tres_mins: str = ""
    grp_tres_run_mins: str = ""
    grp_wall: int | None = None
    max_tres_mins: str = ""
    #: most pending jobs that accrue age priority
    grp_jobs_accrue: int | None = None
    max_jobs_accrue: int | None = None
    #: least priority with which a job gets a planned start
    min_prio_threshold: int | None = None


class Qos(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A quality of service. `pj`, `pn`, `pu`, `pa`: per job, node, user, account."""

    name: str
    id: int = 0
    description: str = ""
    priority: int = 0
    flags: str = ""
    grp_jobs: int | None = None
    grp_submit: int | None = None
    grp_tres: str = ""
    max_tres_pj: str = ""
    max_tres_pn: str = ""
    max_tres_pu: str = ""
    max_tres_pa: str = ""
    max_jobs_pu: int | None = None
    max_jobs_pa: int | None = None
    max_submit_pu: int | None = None
    max_submit_pa: int | None = None
    max_wall: int | None = None
    min_tres_pj: str = ""
    #: names of the QOS whose jobs its jobs may preempt
    preempt: str = ""
    #: as sacctmgr's PreemptMode ("": the cluster's)
    preempt_mode: str = ""
    #: run time in seconds before which its jobs are not preempted; None: that of another QOS or the cluster
    preempt_exempt_seconds: int | None = None
    grace_seconds: int = 0
    #: factor on the usage of its jobs
    usage_factor: float = 1.0
    #: least fair-share factor with which its jobs may wait and start (EnforceUsageThreshold); None: any
    usage_threshold: float | None = None
    #: factor on the TRES limits of associations for its jobs; None: 1
    limit_factor: float | None = None
    #: TRES minutes used up to now, and TRES minutes that running jobs may still use
    grp_tres_mins: str = ""
    grp_tres_run_mins: str = ""
    grp_wall: int | None = None
    max_tres_mins_pj: str = ""
    max_tres_run_mins_pu: str = ""
    max_tres_run_mins_pa: str = ""
    #: most pending jobs that accrue age priority
    grp_jobs_accrue: int | None = None
    max_jobs_accrue_pu: int | None = None
    max_jobs_accrue_pa: int | None = None
    #: least priority with which a job gets a planned start
    min_prio_threshold: int | None = None


class Resource(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Licenses that a server hands out; clusters have parts of them (`ResourceShare`), as `name@server`."""

    name: str
    server: str
    count: int = 0
    description: str = ""
    server_type: str = ""


class ResourceShare(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The percentage of a resource that a cluster may use."""

    name: str
    server: str
    cluster: str
    percent: int = 0


class Federation(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A federation of clusters; `FederationMember` says which clusters are in it."""

    name: str


class FederationMember(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A cluster's membership of a federation. Its features outlive the membership, whose `federation` then is ""."""

    cluster: str
    federation: str = ""
    #: the cluster's number in the federation, 1 to 63; 0: none
    number: int = 0
    #: ACTIVE, INACTIVE, DRAIN or DRAIN+REMOVE; "": in no federation
    state: str = ""
    #: comma-separated names
    features: str = ""


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The records of accounting that one cluster's controllers need. `version` grows with every change; 0: none was
    received yet.
    """

    version: int = 0
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    wckeys: tuple[WcKey, ...] = ()
    #: (user, wckey) of each user that has a default
    default_wckeys: tuple[tuple[str, str], ...] = ()
    #: (name@server, count) of licenses that accounting gives this cluster
    licenses: tuple[tuple[str, int], ...] = ()
    #: (user, Operator or Administrator), by user
    admins: tuple[tuple[str, str], ...] = ()
    #: (user, account), by user; the accounts below count too
    coordinators: tuple[tuple[str, str], ...] = ()
    #: clusters of the cluster's federation, itself among them; empty: it is in none
    federation: tuple[FederationMember, ...] = ()


class PolicyChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The difference to the policy of version `base`: records that are new or changed, and the names of deleted ones. A
    default wckey "" means none.
    """

    base: int
    version: int
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    wckeys: tuple[WcKey, ...] = ()
    default_wckeys: tuple[tuple[str, str], ...] = ()
    gone_associations: tuple[int, ...] = ()
    gone_qos: tuple[str, ...] = ()
    #: (wckey, user)
    gone_wckeys: tuple[tuple[str, str], ...] = ()
    #: all licenses, if any of them changed
    licenses: tuple[tuple[str, int], ...] | None = None
    admins: tuple[tuple[str, str], ...] | None = None
    coordinators: tuple[tuple[str, str], ...] | None = None
    federation: tuple[FederationMember, ...] | None = None


Record = (
    Account | User | Coordinator | WcKey | Association | Qos | Resource | ResourceShare | Federation | FederationMember
)


class ClusterRow(Struct, frozen=True, kw_only=True):
    """A cluster as slurmdbd knows it; "" and 0 before its controller has registered."""

    name: str
    host: str = ""
    port: int = 0
    version: str = ""


class Transaction(Struct, frozen=True, kw_only=True):
    """One entry of the log of changes (`sacctmgr list transactions`). `at`: seconds since the epoch."""

    at: float
    action: str
    actor: str
    where: str
    info: str


# -- requests to slurmdbd


class GetBook(Struct, frozen=True, kw_only=True):
    """All of accounting's policy. Reply: `Book`. `level`: refuse callers below Operator, or Administrator."""

    transactions: bool = False
    deleted: bool = False
    level: str = ""


class Book(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reply to GetBook. `EditBook` sends the `version` back."""

    version: int = 0
    clusters: tuple[ClusterRow, ...] = ()
    accounts: tuple[Account, ...] = ()
    users: tuple[User, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    wckeys: tuple[WcKey, ...] = ()
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    resources: tuple[Resource, ...] = ()
    resource_shares: tuple[ResourceShare, ...] = ()
    federations: tuple[Federation, ...] = ()
    federation_members: tuple[FederationMember, ...] = ()
    #: TRES beyond the usual that controllers have ever counted, in the order in which they were first reported
    tres: tuple[str, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    #: deleted records, without their limits, if they were asked for
    deleted: tuple[Record, ...] = ()
    deleted_clusters: tuple[ClusterRow, ...] = ()
    #: keys of slurmdbd.conf that are on: AllResourcesAbsolute, AllowNoDefAcct
    options: tuple[str, ...] = ()
    #: words of PrivateData that hide something from the caller
    private: tuple[str, ...] = ()
    #: DefaultQOS of new clusters
    default_qos: str = "normal"

    def lacking_qos(self, names: str) -> list[Qos]:
        """The names that are not in the book."""
        existing = {qos_record.name for qos_record in self.qos}
        return [
            Qos(name=name, description="Normal QOS default" if name == "normal" else name)
            for name in names.split(",")
            if name and name not in existing
        ]


class EditBook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Put and drop records in one transaction, if the book still is at `version`. A new association has a negative id.
    Reply: `BookEdited`.
    """

    exact = True

    version: int
    puts: tuple[Record, ...] = ()
    drops: tuple[Record, ...] = ()


class RehearseEdit(EditBook, frozen=True):
    """Report what is wrong with the edit, and do nothing. Reply: `BookEdited` with the present version.

    A separate request and not a field, so that an older daemon refuses it.
    """


class BookEdited(Struct, frozen=True, kw_only=True):
    """The book's version afterwards. `stale`: nothing was done, since the book has changed in the meantime."""

    version: int
    stale: bool = False


class SetPolicy(Struct, frozen=True, kw_only=True):
    """slurmdbd sends a controller the whole policy. Reply: `Done` when it is durable."""

    policy: Policy


class ChangePolicy(Struct, frozen=True, kw_only=True):
    """slurmdbd sends a controller a change of the policy. Reply: `Done` when it is durable. If the controller's policy
    is not `change.base` it refuses and does nothing; slurmdbd then sends the whole policy.
    """

    change: PolicyChange


class AskPolicy(Struct, frozen=True, kw_only=True):
    """A controller that has just registered asks for the policy. Reply: `Done`, after `SetPolicy`.

    `tres`: the TRES that it counts (AccountingStorageTRES).
    """

    cluster: str
    tres: tuple[str, ...] = ()


# -- usage, between slurmdbd, controllers and images


class UsageRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key's usage at `at`, as images and messages hold it: `amounts` in TRES seconds."""

    key: tuple[str | int, ...]
    at: float
    amounts: dict[str, float] = {}


class ResetUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forget usage up to now: of these keys, or (None) of all but QOS with NoDecay. Reply: `Done`."""

    keys: tuple[tuple[str | int, ...], ...] | None = None


class AdoptUsage(Struct, frozen=True, kw_only=True):
    """Replace the usage at `since`, of ended and of running jobs, by these amounts. Reply: `Done`."""

    since: float
    rows: tuple[UsageRow, ...]


class ReckonUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A controller asks slurmdbd for the usage at `at` of all that ran after `since`, by its records.

    The other fields are what usage depends on: `half_life_seconds` (0: none), TRESBillingWeights and QOS of partitions,
    and `largest` (model.limits.usage.billable). Reply: `Reckoned`.
    """

    cluster: str
    at: float
    since: float = 0.0
    half_life_seconds: float = 0.0
    weights: dict[str, tuple[tuple[str, float], ...]] = {}
    partition_qos: dict[str, str] = {}
    largest: str = ""


class Reckoned(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage of associations and QOS, and the number of job records behind it."""

    rows: tuple[UsageRow, ...] = ()
    jobs: int = 0


class CompareUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage according to the controller and to the accounting records; `adopt` makes the controller take the latter.

    Administrators only. Reply: `UsageCompared`.
    """

    adopt: bool = False


class ComparedUsage(Struct, frozen=True, kw_only=True):
    """One association (by its name) or QOS: billed seconds according to the controller and to the records."""

    name: str
    kept: float
    recorded: float


class UsageCompared(Struct, frozen=True, kw_only=True):
    """Reply to CompareUsage: both figures of each association and QOS, from the records of `jobs` jobs. `adopted`: the
    controller took over those of the records.
    """

    rows: list[ComparedUsage]
    jobs: int
    adopted: bool = False
