"""One sinfo listing: columns, filters and order from the options; asks and prints. Source: sinfo(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.errors import RemoteError
from spritz.model.errors import SpritzError
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.notation.hostlist import HostlistError, expand
from spritz.presentation import columns
from spritz.presentation.node import node_states
from spritz.presentation.node.node_fields import LETTERS, NAMES, NodeField, natural, partition_name
from spritz.presentation.node.node_groups import Group, make_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView
    from spritz.presentation.columns import Column

#: `{P}` and `{N}` are as wide as the longest partition and node that is shown
DEFAULT_FORMAT = "%{P}P %.5a %.10l %.6D %.6t %N"
SUMMARY_FORMAT = "%{P}P %.5a %.10l %.16F %N"
LONG_FORMAT = "%{P}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODE_FORMAT = "%{N}N %.6D %.{P}P %6t"
LONG_NODE_FORMAT = "%{N}N %.6D %.{P}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASON_FORMAT = "%20E %9u %19H %N"
LONG_REASON_FORMAT = "%20E %12U %19H %6t %N"

#: least width of those two columns
_WIDTH_MIN = 9


def parse_states(text: str, context: Context) -> node_states.Conditions | None:
    """--states; None for all. Raises AlreadyReported after an error line."""
    try:
        return node_states.parse_states(text)
    except node_states.UnknownState as error:
        for line in node_states.unknown_lines(str(error)):
            context.error(line)
        raise AlreadyReported from error


def check_displaced(parsed: Sequence[tuple[str, str | None]], context: Context) -> None:
    """Slurm checks every --states, also overridden ones. Raises AlreadyReported."""
    for key, value in parsed:
        if key == "states":
            parse_states(value or "", context)


class NodeListing:
    """Prepared from the options; `show` may be called repeatedly. Raises AlreadyReported or SpritzError for invalid
    options.
    """

    def __init__(self, options: Mapping[str, str], context: Context) -> None:
        self._given = options
        self._context = context
        self._states = parse_states(options.get("states", "all"), context)
        self._nodes = self._parse_nodes()
        self._partitions = [name for name in options.get("partition", "").split(",") if name]

    def _parse_nodes(self) -> set[str]:
        text = self._given.get("nodes", "")
        if not text:
            return set()

        try:
            return set(expand(text))
        except HostlistError as error:
            raise SpritzError(str(error)) from error

    def say_options(self) -> None:
        """Print the options in effect, which `sinfo --verbose` does before the listing."""
        from spritz.cli.listings.info import verbose

        self._context.out(verbose.text(self._given, self._columns((), {}), int(self._given["verbose"])))

    # -- asking

    def show(self, controller: Connection) -> None:
        self.show_all((("", controller),))

    def show_all(self, controllers: Iterable[tuple[str, Connection]]) -> None:
        """Ask the controllers, each with its cluster's name, and print one listing."""
        parts: list[tuple[str, list[Partition], dict[str, NodeView]]] = []
        for cluster, controller in controllers:
            partitions, views = self._fetch(controller)
            parts.append((cluster, partitions, {name: view for name, view in views.items() if self._is_meant(view)}))
        every = [partition for _, partitions, _ in parts for partition in partitions]
        shown = self._columns(every, {name: view for _, _, views in parts for name, view in views.items()})
        groups: list[Group] = []
        first = 0
        for cluster, partitions, views in parts:
            for group in self._group(partitions, views, shown):
                group.cluster = cluster
                group.place += first
                groups.append(group)
            first += len(partitions)
        keys = self._sort_keys()
        context = self._context
        if "noheader" not in self._given:
            context.out(columns.header_line(shown) + "\n")
        for key, descending in keys:
            groups.sort(key=key, reverse=descending)
        lines = columns.Lines(shown)
        context.out("".join([lines.line(0.0, (group,)) + "\n" for group in groups]))

    def show_reservations(self, controller: Connection) -> None:
        """Ask for reservations and print them; options about nodes do not matter."""
        from spritz.model.queries.reservations import ListReservations, Reservations
        from spritz.presentation.reservation_text import table

        answer = controller.call(ListReservations(), Reservations)
        if not answer.reservations:
            self._context.out("No reservations in the system\n")
            return
        self._context.out(table(answer.reservations, answer.now, "noheader" not in self._given))

    def show_json(self, controllers: Iterable[Connection]) -> None:
        """Print the listing for --json and --yaml: one document for all clusters."""
        from spritz.presentation.json.envelope import cluster_name
        from spritz.presentation.json.sinfo import groups_json, show

        groups = []
        for controller in controllers:
            partitions, views = self._fetch(controller)
            selected = {name: view for name, view in views.items() if self._is_meant(view)}
            groups += groups_json(cluster_name(), partitions, selected)
        show(self._context, self._given["json"], groups)

    def _fetch(self, controller: Connection) -> tuple[list[Partition], dict[str, NodeView]]:
        try:
            answer = controller.call(ListPartitions(all="all" in self._given), Partitions)
        except RemoteError as error:
            raise self._failed("slurm_load_partitions", error) from error
        try:
            nodes = controller.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
        except RemoteError as error:
            raise self._failed("slurm_load_node", error) from error
        names = self._partitions
        partitions = [partition for partition in answer.partitions if not names or partition.name in names]
        if "all" not in self._given and not names:
            partitions = [partition for partition in partitions if not partition.hidden]
        return partitions, {view.node.name: view for view in nodes.nodes}

    def _failed(self, words: str, error: SpritzError) -> SpritzError:
        """PrivateData keeps it from the caller."""
        self._context.err(f"{words}: {error.message}\n")
        return AlreadyReported()

    def _is_meant(self, view: NodeView) -> bool:
        names = view.state_names
        if self._nodes and view.node.name not in self._nodes:
            return False
        if names[0] == "FUTURE" and "future" not in self._given and not self._asks_for_future():
            return False
        if "dead" in self._given and "NOT_RESPONDING" not in names:
            return False
        if "responding" in self._given and "NOT_RESPONDING" in names:
            return False
        if "list-reasons" in self._given and not view.node.reason:
            return False
        return node_states.matches(view, self._states)

    def _asks_for_future(self) -> bool:
        return self._states is not None and self._states.names("FUTURE")

    # -- columns

    def _columns(self, partitions: Sequence[Partition], views: Mapping[str, NodeView]) -> list[Column]:
        options, context = self._given, self._context
        if "Format" in options:
            if options["Format"].lower().partition(":")[0] == "all":
                return columns.every_letter(LETTERS, " |")
            return columns.parse_names(
                options["Format"], NAMES, lambda what: context.error(f"Invalid job format specification: {what}")
            )
        if options.get("format") == "%all":
            return columns.every_letter(LETTERS, " |")
        text = options.get("format")
        if text is None:
            text = self._default_format()
            if "federation" in options and text.startswith("%{P}P "):
                text = text.replace("%{P}P ", "%{P}P %8V ", 1)
            widest = max([_WIDTH_MIN, *(len(partition_name(partition)) for partition in partitions)])
            longest = max([_WIDTH_MIN, *(len(name) for name in views)])
            text = text.replace("{P}", str(widest)).replace("{N}", str(longest))
        return columns.parse_letters(
            text, LETTERS, lambda what: context.err(f"Invalid node format specification: {what}\n")
        )

    def _default_format(self) -> str:
        options = self._given
        long = "long" in options
        if "summarize" in options:
            return SUMMARY_FORMAT
        if "Node" in options:
            return LONG_NODE_FORMAT if long else NODE_FORMAT
        if "list-reasons" in options:
            return LONG_REASON_FORMAT if long else REASON_FORMAT
        return LONG_FORMAT if long else DEFAULT_FORMAT

    # -- lines

    def _group(
        self, partitions: Sequence[Partition], views: dict[str, NodeView], shown: Sequence[Column]
    ) -> list[Group]:
        fields = [column.field for column in shown if isinstance(column.field, NodeField)]
        exact = "exact" in self._given
        keys = [field.key for field in fields if field.key is not None and (exact or not field.exact)]
        by_node = "Node" in self._given
        of_partition = any(field in (LETTERS["P"], LETTERS["R"]) for field in fields)
        return make_groups(
            partitions,
            views,
            keys,
            by_partition=of_partition or by_node,
            by_node=by_node,
            empty=of_partition and not by_node and "list-reasons" not in self._given,
        )

    def _sort_keys(self) -> list[tuple[_KeyOf, bool]]:
        """Keys, the least important first. Raises SpritzError for a letter that is no field."""
        text = self._given.get("sort") or ("N" if "Node" in self._given else "#P,-t")
        keys: list[tuple[_KeyOf, bool]] = []
        position = len(text) - 1
        while position >= 0:
            letter = text[position]
            position -= 1
            if letter in " ,+-#":
                continue
            configured = position >= 0 and text[position] == "#"
            if configured:
                position -= 1
            sign = text[position] if position >= 0 and text[position] in "+-" else "+"
            field = LETTERS.get(letter)
            if field is None:
                raise SpritzError(f"Invalid sort specification: {letter}")
            keys.append((_KeyOf(field, configured and letter in "PR"), sign == "-"))
        return keys


class _KeyOf:
    """The key by which a group is sorted."""

    __slots__ = ("_configured", "_field")

    def __init__(self, field: NodeField, configured: bool) -> None:
        self._field = field
        self._configured = configured

    def __call__(self, group: Group) -> tuple[object, ...]:
        if self._configured:
            return (group.place,)
        if self._field is LETTERS["N"]:
            return natural(min((view.node.name for view in group.views), key=natural, default=""))
        if self._field.sort is not None:
            return (self._field.sort(group),)
        return (self._field.render(0.0, group),)
