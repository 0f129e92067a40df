"""Which paths ZooKeeper takes (pure)."""

from __future__ import annotations

from kbroker.dev.stand_in.operations import Code, Refused

ROOT = "/"
SYSTEM_NODES = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/stand-in")
_LAST_BMP_CHARACTER = 0xFFFF


def validate(path: str) -> None:
    """Raise Refused (BAD_ARGUMENTS) when no node can have that path."""
    if not path.startswith(ROOT) or (path.endswith(ROOT) and path != ROOT):
        raise Refused(Code.BAD_ARGUMENTS, path)
    if path == ROOT:
        return
    for name in path[1:].split(ROOT):
        if name in ("", ".", ".."):
            raise Refused(Code.BAD_ARGUMENTS, path)
    if not path.isascii() or not path.isprintable():
        for character in path:
            if _is_refused(ord(character)):
                raise Refused(Code.BAD_ARGUMENTS, path)


def _is_refused(code: int) -> bool:
    """Java looks at UTF-16 units: what needs two of them is refused as well."""
    return (
        code <= 0x1F
        or 0x7F <= code <= 0x9F
        or 0xD800 <= code <= 0xF8FF
        or 0xFFF0 <= code <= _LAST_BMP_CHARACTER
        or code > _LAST_BMP_CHARACTER
    )


def parent_of(path: str) -> str:
    """Return the path of the node above. Raises Refused where there cannot be one."""
    slash = path.rfind(ROOT)
    if slash < 0 or "\0" in path:
        raise Refused(Code.BAD_ARGUMENTS, path)
    return path[:slash] or ROOT


def name_of(path: str) -> str:
    """Return the last part of the path."""
    return path[path.rfind(ROOT) + 1 :]
