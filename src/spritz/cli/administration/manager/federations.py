"""`sacctmgr` and federations: their clusters, and each cluster's state and features in its federation.

Source: sacctmgr(1) SPECIFICATIONS FOR FEDERATION and CLUSTER; what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager.arguments import match
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.limits.federations import STATES, joined, member_of, members_of
from spritz.model.limits.records import Federation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spritz.cli.administration.manager.arguments import Conditions, Word
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book, FederationMember, Record
    from spritz.presentation.accounting.association_fields import Row

#: Settings of a cluster that concern its federation.
_OF_CLUSTERS = ("federation", "fedstate", "features")


def _read(
    words: list[Word], context: Context, unknown: str, *, flags: bool = True
) -> tuple[list[str], list[tuple[str, str]] | None]:
    """Names, and (operator, cluster) pairs: None if no clusters are named. Raises AlreadyReported after an error."""
    names: list[str] = []
    clusters: list[tuple[str, str]] | None = None
    for word in words:
        known = "names" if word.key in ("", "name", "federation") else match(word.key, ("names", "clusters", "flags"))
        if known == "names" and word.op == "=":
            names += [name.lower() for name in word.values]
        elif known == "clusters":
            clusters = [*(clusters or []), *((word.op, name.lower()) for name in word.values)]
            if not word.values and word.op == "=":
                clusters = [("=", "")]
        elif known == "flags" and flags:
            context.err(
                f" Unknown federation flag used in:\n '{word.value}'\n Valid federation flags are\n  '(null)'\n"
            )
            raise AlreadyReported
        else:
            context.err(unknown.format(word.text))
            raise AlreadyReported
    return list(dict.fromkeys(names)), clusters


def _need_clusters(book: Book, names: list[str], context: Context) -> None:
    known = {cluster.name for cluster in book.clusters}
    unknown = [name for name in names if name and name not in known]
    for name in unknown:
        context.err(f" The cluster {name} doesn't exist. Please add first.\n")
    if unknown:
        raise AlreadyReported


def _say_where_they_were(book: Book, clusters: Sequence[str], context: Context) -> None:
    """Tell which clusters leave another federation. They are moved all the same, as in Slurm."""
    for name in clusters:
        if federation := member_of(book, name).federation:
            context.err(f" The cluster {name} is assigned to federation {federation}\n")


def add(book: Book, words: list[Word], context: Context) -> Edit:
    """`add federation`: create federations, and move clusters into one. Raises AlreadyReported."""
    names, pairs = _read(words, context, " Unknown option: {}\n Use keyword 'where' to modify condition\n")
    if not names:
        context.err(" Need name of federation to add.\n")
        raise AlreadyReported
    clusters = list(dict.fromkeys(name for _, name in pairs or () if name))
    if len(names) > 1 and clusters:
        context.err(" Can't assign clusters to multiple federations.\n")
        raise AlreadyReported
    _need_clusters(book, clusters, context)
    _say_where_they_were(book, clusters, context)
    there = {federation.name for federation in book.federations}
    for name in names:
        if name in there:
            context.out(f" This federation {name} already exists.  Not adding.\n")
    new = [name for name in names if name not in there]
    if not new:
        raise AlreadyReported
    lines = [" Adding Federation(s)", *(f"  {name}" for name in new)]
    if clusters:
        lines += [" Settings", *(f"  {'Cluster':<13} = {name}" for name in clusters)]
    puts: list[Record] = [Federation(name=name) for name in new]
    return "\n".join(lines) + "\n", [*puts, *joined(book, clusters, new[0])], []


def modify(book: Book, where: list[Word], setting: list[Word], context: Context) -> Edit:
    """`modify federation NAME set clusters=…`: += and -= name clusters that join and leave, = names all members.

    Raises AlreadyReported.
    """
    names, named = _read(where, context, " Unknown condition: {}\n Use keyword 'set' to modify value\n")
    _, pairs = _read(setting, context, " Unknown option: {}\n Use keyword 'where' to modify condition\n")
    if pairs is None:
        context.err(" You didn't give me anything to set\n")
        raise AlreadyReported
    if len(names) != 1 or named:
        context.err(" Can't assign clusters to multiple federations.\n")
        raise AlreadyReported
    name = names[0]
    if all(federation.name != name for federation in book.federations):
        context.err(f" The federation {name} doesn't exist.\n")
        raise AlreadyReported
    inside = [member.cluster for member in members_of(book.federation_members, name)]
    exact = [cluster for op, cluster in pairs if op == "="]
    added = [cluster for op, cluster in pairs if op in ("=", "+=") and cluster]
    for cluster in added:
        if cluster in inside:
            context.err(f" The cluster {cluster} is already assigned to federation {name}\n")
    _need_clusters(book, [cluster for _, cluster in pairs], context)
    _say_where_they_were(book, [cluster for cluster in added if cluster not in inside], context)
    leaving = [cluster for op, cluster in pairs if op == "-=" and cluster in inside]
    if exact:
        leaving += [cluster for cluster in inside if cluster not in exact]
    leaving = sorted(dict.fromkeys(leaving))
    joining = [cluster for cluster in dict.fromkeys(added) if cluster not in inside]
    if not (leaving or joining):
        context.out("Nothing to change\n")
        raise AlreadyReported
    lines = [" Setting"]
    lines += [f"  {'Cluster':<12} += {cluster}" for cluster in joining]
    lines += [f"  {'Cluster':<12} -= {cluster}" for cluster in leaving]
    lines += [" Modified federation...", f"  {name}"]
    return "\n".join(lines) + "\n", [*joined(book, leaving, ""), *joined(book, joining, name)], []


def delete(book: Book, where: list[Word], context: Context) -> Edit:
    """`delete federation`: its clusters leave it. Raises AlreadyReported."""
    names, clusters = _read(where, context, " Unknown condition: {}\n Use keyword 'set' to modify value\n")
    if not names or clusters:
        context.err(" No conditions given to remove, not executing.\n")
        raise AlreadyReported
    gone = [federation for federation in book.federations if federation.name in names]
    if not gone:
        context.err(" Nothing deleted\n")
        raise AlreadyReported
    former_members = [
        member.cluster for federation in gone for member in members_of(book.federation_members, federation.name)
    ]
    lines = [" Deleting federations...", *(f"  {federation.name}" for federation in gone)]
    return "\n".join(lines) + "\n", list(joined(book, former_members, "")), list(gone)


def rows(book: Book, where: list[Word], context: Context, *, tree: bool) -> Iterator[Row]:
    """`show federation`: a row for each member, and for each federation without members. `tree`: a row for each
    federation, followed by its members.
    """
    names, clusters = _read(where, context, " Unknown condition: {}\n Use keyword 'set' to modify value\n")
    wanted = {name for _, name in clusters or ()}
    for federation in book.federations:
        members = members_of(book.federation_members, federation.name)
        if names and federation.name not in names:
            continue
        if wanted and wanted.isdisjoint(member.cluster for member in members):
            continue
        if tree or not members:
            yield {"federation": federation.name}
        yield from ({"federation": "" if tree else federation.name, "member": member} for member in members)


def split_settings(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """A cluster's settings: those that concern its federation, and the others."""
    federated = [word for word in words if match(word.key, _OF_CLUSTERS, 4) is not None]
    return federated, [word for word in words if word not in federated]


def modify_clusters(book: Book, selection: Conditions, words: list[Word], context: Context) -> Edit:
    """`modify cluster NAME set federation=… fedstate=… features=…`. Raises AlreadyReported."""
    names = selection.names + selection.clusters
    targets = [member_of(book, cluster.name) for cluster in book.clusters if not names or cluster.name in names]
    targets = [target for target in targets if not selection.federations or target.federation in selection.federations]
    lines = [" Setting"]
    members = {target.cluster: target for target in targets}
    for word in words:
        known = match(word.key, _OF_CLUSTERS, 4)
        if known == "features":
            label = f"{'Feature':<13} =" if word.op == "=" else f"{'Feature':<11} {word.op}"
            lines += [f"  {label} {feature}" for feature in word.values or [""]]
            members = {key: replace(member, features=_features(member, word)) for key, member in members.items()}
            continue
        if word.op != "=":
            context.err(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")
            raise AlreadyReported
        if known == "fedstate":
            state = match(word.value.upper(), STATES)
            if state is None:
                context.err(f"Invalid FedState {word.value}.\n")
                raise AlreadyReported
            if any(not member.federation for member in members.values()):
                context.err(" FedState is of clusters that are in a federation.\n")
                raise AlreadyReported
            lines.append(f"  {'FedState':<14} = {state}")
            members = {key: replace(member, state=state) for key, member in members.items()}
            continue
        name = word.value.lower()
        if name and all(federation.name != name for federation in book.federations):
            context.err(f" The federation {name} doesn't exist.\n")
            raise AlreadyReported
        lines.append(f"  {'Federation':<14} = {name}")
        for moved in joined(book, list(members), name):
            features = members[moved.cluster].features
            members[moved.cluster] = replace(moved, features=features)
    if not targets:
        return " Nothing modified\n", [], []
    lines += [" Modified cluster...", *(f"  {name}" for name in members)]
    changed: list[Record] = [member for member in members.values() if member != member_of(book, member.cluster)]
    return "\n".join(lines) + "\n", changed, []


def _features(member: FederationMember, word: Word) -> str:
    old = [feature for feature in member.features.split(",") if feature]
    if word.op == "-=":
        return ",".join(feature for feature in old if feature not in word.values)
    return ",".join(dict.fromkeys([*(old if word.op == "+=" else ()), *word.values]))
