# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""How each version of a message stands on the wire: made once, walked by the codec.

For each message (or struct) and version a `Plan` holds the fields which that version has, in wire order, each a `Step`
with everything decided that can be decided beforehand; and what the version lacks.
"""

from typing import Any

from kbroker.protocol import slots
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import BOOL, ERROR, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UUID
from kbroker.protocol.schema import Field, Message, Schema, Struct

_FIXED_SIZES = {BOOL: 1, INT8: 1, INT16: 2, INT32: 4, INT64: 8, FLOAT64: 8, UUID: 16, ERROR: 2}


class Step:
    """How one field stands on the wire in one version."""

    def __init__(
        self, struct_type: type[Struct], field: Field, version: int, flexible: bool, plan: "Plan | None"
    ) -> None:
        self.name = field.name
        self.place = slots.place_of(struct_type, field.name)
        self.kind = field.kind
        self.array = field.array
        self.nullable = version in field.nullable
        self.flexible = flexible
        self.plan: Any = plan
        self.tag = -1 if field.tag is None else field.tag
        self.default = field.default
        self.element_size = _smallest(field.kind, flexible, plan)


class Plan:
    """One version of a message or struct, ready to be walked."""

    def __init__(self, struct_type: type[Struct], version: int, flexible: bool) -> None:
        fields = struct_type.__schema__.fields
        steps = [(item, _step(struct_type, item, version, flexible)) for item in fields]
        present = [(item, step) for item, step in steps if version in item.versions]
        lacking = [(item, step) for item, step in steps if version not in item.versions]
        self.name = struct_type.__qualname__
        self.struct_type = struct_type
        self.version = version
        self.flexible = flexible
        self.steps = tuple(step for item, step in present if item.tag is None)
        self.tagged = tuple(sorted((step for item, step in present if item.tag is not None), key=_tag_of))
        self.preset = (*(step for _, step in lacking), *self.tagged)
        self.refused = tuple(step for item, step in lacking if not item.ignorable)
        self.smallest = sum(_smallest_field(step) for step in self.steps) + (1 if flexible else 0)
        self.is_flat = not any(step.array or step.kind in (STRUCT, RECORDS) for _, step in steps)
        self.holds_arrays = any(step.array or (step.plan and step.plan.holds_arrays) for step in self.steps)


def _tag_of(step: Step) -> int:
    return step.tag


def _step(struct_type: type[Struct], field: Field, version: int, flexible: bool) -> Step:
    """Return a field's step, with the plan of the struct it holds, if it holds one and is in the version."""
    plan = None
    if field.kind == STRUCT and version in field.versions:
        assert field.struct is not None, f"{field.name}: no struct {field.struct_name} in its message"
        plan = Plan(field.struct, version, flexible)
    return Step(struct_type, field, version, flexible, plan)


def _smallest(kind: int, flexible: bool, plan: Plan | None) -> int:
    """Return the least number of bytes that one value of a kind takes: what bounds the count of an array."""
    if plan is not None:
        return max(plan.smallest, 1)
    if kind in _FIXED_SIZES:
        return _FIXED_SIZES[kind]
    if flexible:
        return 1
    return 2 if kind == STRING else 4


def _smallest_field(step: Step) -> int:
    """Return the least number of bytes that a field takes."""
    if step.array:
        return 1 if step.flexible else 4
    if step.plan is not None:
        return 1 if step.nullable else step.plan.smallest
    return step.element_size


_plans: dict[Any, Plan] = {}


def plan_of(message_type: type[Message], version: int) -> Plan:
    """Return the plan of a message in a version; raises UNSUPPORTED_VERSION for one it does not have."""
    plan = _plans.get((message_type, version))
    if plan is None:
        schema: Schema = message_type.__schema__
        if version not in schema.versions:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{schema.name} has versions {schema.versions}, not {version}",
            )
        plan = _plans[(message_type, version)] = Plan(message_type, version, version in schema.flexible)
    return plan


def element_plan(struct_type: type[Struct], message_type: type[Message], version: int) -> Plan:
    """Return the plan of a struct that stands in an array of a message in a version."""
    key = struct_type, version
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = Plan(struct_type, version, version in message_type.__schema__.flexible)
    return plan
