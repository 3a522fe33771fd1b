"""`sacctmgr` and resources: licenses of a license server, and the clusters' shares of them.

Source: sacctmgr(1) SPECIFICATIONS FOR RESOURCE; what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.cli.administration.manager.add import clusters_of
from spritz.cli.administration.manager.arguments import match
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.limits.records import Resource, ResourceShare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book, Record
    from spritz.presentation.accounting.association_fields import Row

#: The server of resources that name none.
SERVER = "slurmdb"

_WORDS = ("names", "clusters", "count", "descriptions", "flags", "percentallowed", "server", "servertype", "type")


class ResourceArguments(Struct):
    """Arguments of a command about resources: conditions or new values."""

    names: list[str] = []
    servers: list[str] = []
    clusters: list[str] = []
    count: int | None = None
    percent: int | None = None
    description: str | None = None
    server_type: str | None = None
    type: str = ""

    @classmethod
    def of(
        cls,
        words: list[Word],
        context: Context,
        unknown: str = " Unknown option: {}\n Use keyword 'where' to modify condition\n",
    ) -> ResourceArguments:
        """Parse the words. Raises AlreadyReported after a message: `unknown` for an unknown word."""
        arguments = cls()
        for word in words:
            known = "names" if word.key in ("", "name") else match(word.key, (*_WORDS, "allowed"), 2)
            if known is None or word.op != "=":
                context.err(unknown.format(word.text))
                raise AlreadyReported
            arguments._take(known, word, context)
        return arguments

    def _take(self, known: str, word: Word, context: Context) -> None:
        if known == "names":
            self.names += [name.lower() for name in word.values]
        elif known == "clusters":
            self.clusters += word.values
        elif known == "server":
            self.servers += word.values
        elif known == "count":
            self.count = _number("count", word.value, context)
        elif known in ("percentallowed", "allowed"):
            self.percent = _number("PercentAllowed", word.value.rstrip("%"), context)
        elif known == "descriptions":
            self.description = word.value
        elif known == "servertype":
            self.server_type = word.value
        elif known == "type":
            if word.value.lower() != "license":
                context.err(f" Unknown resource type: '{word.value}'  Valid resources is License.\n")
                raise AlreadyReported
            self.type = "License"

    @property
    def server(self) -> str:
        """The first server that was named, or the default."""
        return self.servers[0] if self.servers else SERVER

    def means(self, resource: Resource | ResourceShare) -> bool:
        """Whether these conditions select the resource, or the cluster's share."""
        if (self.names and resource.name not in self.names) or (self.servers and resource.server not in self.servers):
            return False
        return not (isinstance(resource, ResourceShare) and self.clusters and resource.cluster not in self.clusters)


def _number(what: str, text: str, context: Context) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    context.error(f"Invalid value for {what} ({text})")
    return None


def add(book: Book, words: list[Word], context: Context) -> Edit:
    """`add resource`: a new resource, or clusters' shares of an existing one. Raises AlreadyReported."""
    arguments = ResourceArguments.of(words, context)
    if not arguments.names:
        context.err(" Need name of resource to add.\n")
        raise AlreadyReported
    if arguments.clusters:
        try:
            clusters_of(book, arguments.clusters, context)
        except AlreadyReported:
            context.err(" Need a valid cluster name to add a cluster resource.\n")
            raise
    known = {(resource.name, resource.server): resource.count for resource in book.resources}
    unit = "" if "AllResourcesAbsolute" in book.options else "%"
    existing = {(share.name, share.server, share.cluster) for share in book.resource_shares}
    puts: list[Record] = []
    lines: list[str] = []
    for name in dict.fromkeys(arguments.names):
        new = (name, arguments.server) not in known
        if new and not arguments.type:
            context.err(f" Need to designate a resource type to initially add '{name}'.\n")
            raise AlreadyReported
        shares = [cluster for cluster in arguments.clusters if (name, arguments.server, cluster) not in existing]
        whole = 100 if unit else known.get((name, arguments.server), arguments.count or 0)
        _check_sum(book, name, arguments, len(shares), whole, unit, context)
        if not new and not shares:
            continue
        lines.append(f"  {name}@{arguments.server}")
        if new:
            puts.append(
                Resource(
                    name=name,
                    server=arguments.server,
                    count=arguments.count or 0,
                    description=arguments.description or name,
                    server_type=arguments.server_type or "",
                )
            )
        for cluster in shares:
            percent = arguments.percent or 0
            lines.append(f"   Cluster - {cluster}\t{percent}{unit}")
            puts.append(ResourceShare(name=name, server=arguments.server, cluster=cluster, percent=percent))
    if not puts:
        return " Nothing new added.\n", [], []
    settings = _settings(arguments, new=any(isinstance(record, Resource) for record in puts))
    lines = [" Adding Resource(s)", *lines, " Settings", *(f"  {title:<14} = {value}" for title, value in settings)]
    return "\n".join(lines) + "\n", puts, []


def _check_sum(
    book: Book, name: str, arguments: ResourceArguments, clusters: int, whole: int, unit: str, context: Context
) -> None:
    """Raises AlreadyReported if the new shares of that many clusters exceed what is left of `whole`."""
    used = sum(
        share.percent for share in book.resource_shares if (share.name, share.server) == (name, arguments.server)
    )
    if clusters * (arguments.percent or 0) > whole - used:
        context.err(
            f" Adding this {clusters} clusters to resource {name}@{arguments.server} at {arguments.percent}{unit} each "
            f", with {used}{unit} already used,  would go over {whole}{unit}."
            "  Please redo your math and resubmit.\n"
        )
        raise AlreadyReported


def _settings(arguments: ResourceArguments, *, new: bool) -> list[tuple[str, str]]:
    """Title and value of the lines under "Settings"; `new`: a resource is added, and not only shares."""
    settings = [("Server", arguments.server)]
    if new:
        last = arguments.names[-1]
        settings = [("Name", last), *settings, ("Description", arguments.description or last)]
        settings += [("ServerType", arguments.server_type)] if arguments.server_type else []
        settings += [("Count", str(arguments.count))] if arguments.count is not None else []
    return [*settings, ("Type", "License")]


def modify(book: Book, where: list[Word], setting: list[Word], context: Context) -> Edit:
    """`modify resource where … set …`. Raises AlreadyReported."""
    selection, changes = ResourceArguments.of(where, context), ResourceArguments.of(setting, context)
    if changes.percent is not None and not selection.clusters:
        context.err('Can\'t change "percentallowed" without specifying a cluster.\n')
        raise AlreadyReported
    if not (selection.names or selection.servers or selection.clusters):
        return " Nothing modified\n", [], []
    puts: list[Record] = []
    lines: list[str] = []
    shares = [share for share in book.resource_shares if selection.means(share)]
    for resource in book.resources:
        if not selection.means(resource):
            continue
        new = resource
        if not selection.clusters:
            new = replace(
                resource,
                count=resource.count if changes.count is None else changes.count,
                description=resource.description if changes.description is None else changes.description,
                server_type=resource.server_type if changes.server_type is None else changes.server_type,
            )
            if new != resource:
                puts.append(new)
                lines.append(f"  {resource.name}@{resource.server}")
        for share in shares:
            if (share.name, share.server) != (resource.name, resource.server):
                continue
            changed = share if changes.percent is None else replace(share, percent=changes.percent)
            if changed != share:
                puts.append(changed)
            if changed != share or new != resource:
                lines.append(f"  Cluster - {share.cluster}\t- {share.name}@{share.server}")
    if not puts:
        return " Nothing modified\n", [], []
    _need_enough(book, puts, context)
    return "\n".join([" Modified server resource ...", *lines]) + "\n", puts, []


def _need_enough(book: Book, puts: list[Record], context: Context) -> None:
    """Raises AlreadyReported, after sacctmgr's lines, if clusters' shares exceed a resource."""
    unit = "" if "AllResourcesAbsolute" in book.options else "%"
    records = (*book.resources, *puts)
    wholes = {(record.name, record.server): record.count for record in records if isinstance(record, Resource)}
    shares = [record for record in (*book.resource_shares, *puts) if isinstance(record, ResourceShare)]
    for (name, server), count in wholes.items():
        percents = {share.cluster: share.percent for share in shares if (share.name, share.server) == (name, server)}
        whole = 100 if unit else count
        if sum(percents.values()) > whole:
            context.error(f"You can not allocate more than {whole}{unit} of a resource")
            context.err(f" If change was accepted it would look like this...\n  {name}@{server}\n")
            context.err("".join(f"   Cluster - {cluster}\t {part}{unit}\n" for cluster, part in percents.items()))
            context.err(f"   total\t\t{sum(percents.values())}{unit}\n")
            raise AlreadyReported


def delete(book: Book, where: list[Word], context: Context) -> Edit:
    """`delete resource`: the shares of the named clusters, or without clusters the resource. Raises AlreadyReported."""
    selection = ResourceArguments.of(where, context)
    if not (selection.names or selection.servers or selection.clusters):
        context.err(" No conditions given to remove, not executing.\n")
        raise AlreadyReported
    shares = [share for share in book.resource_shares if selection.means(share)]
    whole = [] if selection.clusters else [resource for resource in book.resources if selection.means(resource)]
    if not (shares if selection.clusters else whole):
        return " Nothing deleted\n", [], []
    lines = []
    record: Resource | ResourceShare
    for record in whole or shares:
        if isinstance(record, Resource):
            lines.append(f"  {record.name}@{record.server}")
        lines += [
            f"  Cluster - {part.cluster}\t- {part.name}@{part.server}"
            for part in (shares if isinstance(record, Resource) else [record])
            if (part.name, part.server) == (record.name, record.server)
        ]
    return "\n".join([" Deleting resource(s)...", *lines]) + "\n", [], [*shares, *whole]


def rows(book: Book, where: list[Word], context: Context, *, with_clusters: bool) -> Iterator[Row]:
    """`show resource`: a row for each resource, or with `with_clusters` for each cluster's share. Raises
    AlreadyReported.
    """
    selection = ResourceArguments.of(where, context, " Unknown condition: {}\n Use keyword 'set' to modify value\n")
    for resource in book.resources:
        if not selection.means(resource):
            continue
        shares = [part for part in book.resource_shares if (part.name, part.server) == (resource.name, resource.server)]
        row: Row = {"resource": resource, "allocated": sum(part.percent for part in shares)}
        if not with_clusters and not selection.clusters:
            yield row
            continue
        yield from (
            {**row, "share": part} for part in shares if not selection.clusters or part.cluster in selection.clusters
        )
