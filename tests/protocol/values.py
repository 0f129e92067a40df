"""Hypothesis strategies for messages: any value that a message may hold in one version."""

import functools
from typing import Any

from hypothesis import strategies as st

from kbroker.protocol import primitives
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.schema import Field, Struct, schema_of

INTEGERS = {primitives.INT8: 8, primitives.INT16: 16, primitives.INT32: 32, primitives.INT64: 64}

PLAIN: dict[int, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for kind, bits in INTEGERS.items()},
    primitives.BOOL: st.booleans(),
    primitives.FLOAT64: st.floats(allow_nan=False),
    primitives.STRING: st.text(max_size=6),
    primitives.BYTES: st.binary(max_size=6),
    primitives.RECORDS: st.binary(max_size=6) | st.binary(min_size=1500, max_size=1500),
    primitives.UUID: st.binary(min_size=16, max_size=16),
    primitives.ERROR: st.sampled_from(ErrorCode),
}


@functools.cache
def structs(struct_type: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Messages or structs whose fields outside of a version have their defaults."""
    fields = schema_of(struct_type).fields
    return st.builds(struct_type, **{item.name: values(item, version) for item in fields if version in item.versions})


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Values of one field."""
    one = PLAIN[field.kind] if field.struct is None else structs(field.struct, version)
    if field.array:
        one = st.lists(one, max_size=2)
    return st.none() | one if version in field.nullable else one
