"""Makes a struct without its constructor, and reads and writes its fields by their place.

In two forms, as `memory` is: `slots.pxd` holds the same functions in C, where a place is an offset within the object;
interpreted modules call the ones below, where it is the field's name. Compiled, a place holds for instances of the
class it was asked from and for no others: whoever uses one looks at the object's class first.
"""

new = object.__new__
store = setattr
load = getattr


def untrack(struct: object) -> None:
    """Spare the garbage collector a struct of plain values, which are part of no cycle: the compiled form does it."""


def place_of(cls: type, name: str) -> str:
    """Return where a field of a class with slots lies."""
    return name
