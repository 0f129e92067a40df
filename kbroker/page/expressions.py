"""Expressions that records are searched by, as `value.dep_delay > 60 and headers.origin == "JFK"`. Pure.

    names       key, value (JSON where they are, else text), headers, partition, offset, timestamp (ms)
    fields      value.a.b, value["a b"], value.list[0]; what is not there is null, and nothing but null is equal to it
    operators   == != < <= > >= in, not in, and, or, not, + - * / %; parentheses, numbers, texts, [lists]
    calls       lower(x), len(x), matches(x, "pattern")      (a pattern of RE2: it takes no time without end)

Python's grammar, and nothing of Python besides: no other names, calls or attributes.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

import re2

from kbroker.protocol.records.record import Record

LONGEST = 2_000
MOST_CALLS = 20
DEEPEST = 40
Evaluate = Callable[[Mapping[str, Any]], Any]
NAMES = ("key", "value", "headers", "partition", "offset", "timestamp")
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
CONSTANTS = {"true": True, "false": False, "null": None}


class WrongExpression(ValueError):
    """The text is no expression."""


def compile_expression(text: str) -> Callable[[Record], bool]:
    """Return what says whether a record is meant; raises WrongExpression."""
    if len(text) > LONGEST:
        raise WrongExpression(f"an expression has at most {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise WrongExpression(f"{text!r} is no expression: {getattr(error, 'msg', error)}") from None
    if sum(isinstance(node, ast.Call) for node in ast.walk(tree)) > MOST_CALLS:
        raise WrongExpression(f"an expression has at most {MOST_CALLS} calls")
    evaluate = _compiled(tree.body, DEEPEST)

    def matches(record: Record) -> bool:
        try:
            return bool(evaluate(_Fields(record)))
        except (TypeError, ValueError, ArithmeticError, LookupError):
            return False  # such a record has nothing to compare

    return matches


class _Fields(dict[str, Any]):
    """A record's names; JSON is read when it is asked for."""

    def __init__(self, record: Record) -> None:
        super().__init__(partition=record.partition, offset=record.offset, timestamp=record.timestamp)
        self._record = record

    def __missing__(self, name: str) -> Any:
        if name == "headers":
            found: Any = {key: _content(value) for key, value in self._record.headers}
        else:
            found = _content(getattr(self._record, name))
        self[name] = found
        return found


def _content(data: bytes | None) -> Any:
    if data is None:
        return None
    text = bytes(data).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _compiled(node: ast.expr, depth: int) -> Evaluate:
    if not depth:
        raise WrongExpression("the expression is nested too deeply")
    compile_node = _NODES.get(type(node))
    if compile_node is None:
        raise WrongExpression(f"{_written(node)} has no place in an expression")
    return compile_node(node, depth - 1)


def _written(node: ast.expr) -> str:
    try:
        return repr(ast.unparse(node))
    except RecursionError:
        return "what is nested so deeply"


def _constant(node: ast.Constant, depth: int) -> Evaluate:
    if not isinstance(node.value, str | int | float | None):
        raise WrongExpression(f"{_written(node)} has no place in an expression")
    return lambda fields: node.value


def _name(node: ast.Name, depth: int) -> Evaluate:
    if node.id in CONSTANTS:
        return lambda fields: CONSTANTS[node.id]
    if node.id not in NAMES:
        raise WrongExpression(f"{node.id!r} is not known: a record has {', '.join(NAMES)}")
    return lambda fields: fields[node.id]


def _attribute(node: ast.Attribute, depth: int) -> Evaluate:
    owner = _compiled(node.value, depth)
    return lambda fields: _item(owner(fields), node.attr)


def _subscript(node: ast.Subscript, depth: int) -> Evaluate:
    owner, key = _compiled(node.value, depth), _compiled(node.slice, depth)
    return lambda fields: _item(owner(fields), key(fields))


def _item(owner: Any, key: Any) -> Any:
    if isinstance(owner, dict):
        return owner.get(key)
    if isinstance(owner, list) and isinstance(key, int):
        return owner[key] if -len(owner) <= key < len(owner) else None
    return None


def _boolean(node: ast.BoolOp, depth: int) -> Evaluate:
    parts = [_compiled(value, depth) for value in node.values]
    if isinstance(node.op, ast.And):
        return lambda fields: all(part(fields) for part in parts)
    return lambda fields: any(_or_false(part, fields) for part in parts)


def _or_false(part: Evaluate, fields: Mapping[str, Any]) -> Any:
    """One side of an `or` that cannot be compared leaves the others."""
    try:
        return part(fields)
    except (TypeError, ValueError, ArithmeticError, LookupError):
        return False


def _unary(node: ast.UnaryOp, depth: int) -> Evaluate:
    part = _compiled(node.operand, depth)
    if isinstance(node.op, ast.Not):
        return lambda fields: not part(fields)
    if isinstance(node.op, ast.USub):
        return lambda fields: -part(fields)
    raise WrongExpression(f"{_written(node)} has no place in an expression")


def _comparison(node: ast.Compare, depth: int) -> Evaluate:
    sides = (node.left, *node.comparators)
    parts = [_compiled(part, depth) for part in sides]
    for how, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(how, ast.Is | ast.IsNot) and not (_is_single(left) or _is_single(right)):
            raise WrongExpression("is and is not go with null, true and false: compare others with == and !=")
    compare = [COMPARE[type(each)] for each in node.ops]

    def evaluate(fields: Mapping[str, Any]) -> bool:
        left = parts[0](fields)
        for how, part in zip(compare, parts[1:], strict=True):
            right = part(fields)
            if not how(left, right):
                return False
            left = right
        return True

    return evaluate


def _arithmetic(node: ast.BinOp, depth: int) -> Evaluate:
    how = ARITHMETIC.get(type(node.op))
    if how is None:
        raise WrongExpression(f"{_written(node)}: known are + - * / %")
    left, right = _compiled(node.left, depth), _compiled(node.right, depth)

    def evaluate(fields: Mapping[str, Any]) -> Any:
        values = left(fields), right(fields)
        if not all(isinstance(value, int | float) for value in values):
            raise TypeError("only numbers are reckoned with")
        return how(*values)

    return evaluate


def _is_single(node: ast.expr) -> bool:
    """Whether it is null, true or false."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, ast.Name) and node.id in CONSTANTS


def _list(node: ast.List, depth: int) -> Evaluate:
    parts = [_compiled(part, depth) for part in node.elts]
    return lambda fields: [part(fields) for part in parts]


def _call(node: ast.Call, depth: int) -> Evaluate:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    parts = [_compiled(part, depth) for part in node.args]
    if name == "lower" and len(parts) == 1 and not node.keywords:
        return lambda fields: str(parts[0](fields)).lower()
    if name == "len" and len(parts) == 1 and not node.keywords:
        return lambda fields: len(parts[0](fields))
    if name == "matches" and len(parts) == 2 and isinstance(node.args[1], ast.Constant) and not node.keywords:
        wanted = str(node.args[1].value)
        if any(ord(char) < 32 for char in wanted):
            raise WrongExpression('a pattern with a backslash is one of its own: write r"\\bword" and not "\\bword"')
        try:
            pattern = re2.compile(wanted, _quiet())
        except re2.error as error:
            raise WrongExpression(f"{node.args[1].value!r} is no pattern: {error}") from None
        return lambda fields: pattern.search(_text(parts[0](fields))) is not None
    raise WrongExpression(f'{_written(node)}: known are lower(x), len(x) and matches(x, "pattern")')


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_NODES: dict[type[ast.expr], Callable[[Any, int], Evaluate]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.Compare: _comparison,
    ast.BinOp: _arithmetic,
    ast.List: _list,
    ast.Tuple: _list,
    ast.Call: _call,
}
