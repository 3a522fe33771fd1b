"""What priorities take from accounting's policy: Priority of associations and QOS. Source: sacctmgr(1) Priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from spritz.model.cluster.priority import PriorityInputs
    from spritz.model.limits.catalogue import Touched
    from spritz.model.limits.rules import Rules


def policy_inputs(inputs: PriorityInputs, rules: Rules, touched: Touched | None = None) -> PriorityInputs:
    """`inputs` with the priorities of this policy. `touched`: what changed in it (None: anything may have).

    Returns the same object if nothing changed.
    """
    qos = inputs.qos
    if touched is None or touched.qos:
        qos = {name: bounds.record.priority for name, bounds in rules.qos.items() if bounds.record.priority}
    associations = {} if touched is None else dict(inputs.associations)
    if touched is None or touched.users:
        for record in rules.users_of(touched):
            association = rules.association(record.account, record.user, record.partition)
            if association is not None and association.priority:
                associations[record.account, record.user] = association.priority
            else:
                associations.pop((record.account, record.user), None)
        # Associations that no longer exist.
        for key in touched.counted if touched is not None else ():
            if rules.association(*key, "") is None:
                associations.pop(key, None)
    if touched is not None and qos == inputs.qos and associations == inputs.associations:
        return inputs
    return replace(inputs, qos=qos, associations=associations)
