"""Disks that lose what was not synced, fail, and rot: those of one broker only, where nothing more is promised."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.message_set import has_header, read_any_header
from kbroker.segment.checkpoints import HIGH_WATERMARKS, read_offsets
from kbroker.segment.files import Files
from tests.simulation.deaths import PARTITIONS, TOPIC, Undo, kill, kill_each
from tests.simulation.disk import Disk
from tests.simulation.inspectors import look_for_damage

SHOWN = 0.75
"""How often a file shows that it was changed: a disk that rots says nothing."""
BASE_OFFSET_SIZE = 8

if TYPE_CHECKING:
    from tests.simulation.world import World


def lose_power(world: World) -> tuple[str, Undo]:
    """Brokers lose what was not synced: any of them where that is promised, else one whose records others have."""
    chosen = [world.weak]
    if world.flushes:
        chosen = world.rng.sample(sorted(world.brokers), world.rng.choice((1, 1, 2, 3)))
    elif not (world.is_calm and others_have(world, world.weak)):
        return kill(world)
    lost = [world.brokers[each].lose_power(world.rng) for each in chosen]

    def start_again() -> None:
        for each in chosen:
            world.start(each)

    return f"brokers {chosen} lose their power, and {lost} changes", start_again


def lose_power_and_be_alone(world: World) -> tuple[str, Undo]:
    """A broker is back after a loss of power before anybody saw it go, and all that know more than it are killed."""
    if world.flushes or not (world.is_calm and others_have(world, world.weak)):
        return lose_power(world)
    lost = world.brokers[world.weak].lose_power(world.rng)
    world.start(world.weak)
    others = [each for each in sorted(world.brokers) if each != world.weak]
    text = f"broker {world.weak} loses its power, and {lost} changes, and is back; the others are killed"
    return text, kill_each(world, others)


def others_have(world: World, broker_id: int) -> bool:
    """Whether others that are in sync have what a broker has, and serve: who is away is left out once it is missed."""
    topics = [(TOPIC, number) for number in range(PARTITIONS)] + [("__transaction_state", 0), ("__consumer_offsets", 0)]
    serving = {each for each, broker in world.brokers.items() if broker.is_serving and each != broker_id}
    isrs = (set(world.zookeeper.isr(*each)) for each in topics)
    return all(broker_id not in isr or isr & serving for isr in isrs)


def fail_disk(world: World) -> tuple[str, Undo]:
    """A disk answers errors only, until it is replaced and its broker started anew."""
    disk, code = world.rng.choice(world.brokers[world.weak].disks), world.rng.choice((errno.EIO, errno.ENOSPC))
    disk.fails = code
    return f"{disk.name} fails with {errno.errorcode[code]}", _replaced(world, disk)


def fail_to_sync(world: World) -> tuple[str, Undo]:
    """A disk takes what is written and can keep none of it; somebody sends what its broker alone has to keep."""
    broker = world.brokers[world.weak]
    led = [number for number in range(PARTITIONS) if world.zookeeper.leader(TOPIC, number) == world.weak]
    if not (world.flushes and broker.is_serving and led):
        return fail_disk(world)
    number = world.rng.choice(led)
    disk = next(each for each in broker.disks if Path(each.folder, f"{TOPIC}-{number}").exists())
    disk.fails, disk.fails_syncs_only = errno.EIO, True
    world.inspect(lambda visitor: visitor.call_on(broker.host, f"{TOPIC}:{number}", visitor.send_in_haste))
    return f"{disk.name} syncs nothing", _replaced(world, disk)


def _replaced(world: World, disk: Disk) -> Undo:
    def replace() -> None:
        disk.fails, disk.fails_syncs_only = 0, False
        world.kill(world.weak)
        world.start(world.weak)

    return replace


def flip(world: World) -> tuple[str, Undo]:
    """A bit of a closed segment flips, and flips back; where the file shows that it was changed, it is not served.

    A broker trusts what it has written itself, and clients have nothing but checksums: a bit that these leave out
    flips only where the file shows it.
    """
    closed = [path for logs in _logs_of_weak(world) for path in logs[:-1]]
    if not closed:
        return kill(world)
    path, broker, is_shown = world.rng.choice(closed), world.brokers[world.weak], world.rng.random() < SHOWN
    position = world.rng.randrange(path.stat().st_size)
    is_shown = is_shown or is_of_an_offset(path.read_bytes(), position)
    undo = broker.disks[0].flip(world.rng, path, position, is_shown)
    if is_shown:
        world.inspect(lambda visitor: look_for_damage(visitor, broker, path))
    return f"a bit of {_name(path)} of broker {world.weak} flips{', as its file shows' if is_shown else ''}", undo


def is_of_an_offset(data: bytes, position: int) -> bool:
    """Whether a byte is of a batch's base offset, where no checksum looks."""
    begins = 0
    with contextlib.suppress(KafkaError):  # another bit has flipped before
        while has_header(data, begins) and (size := read_any_header(data, begins).size) <= position - begins:
            begins += size
    return position - begins < BASE_OFFSET_SIZE


def flip_and_kill(world: World) -> tuple[str, Undo]:
    """A bit flips while a broker is dead: it finds less than it had, as its checkpoints tell it."""
    known = [(path, size) for logs in _logs_of_weak(world) for path in logs if (size := _known_bytes(path))]
    if not known:
        return kill(world)
    broker, (path, size) = world.brokers[world.weak], known[-1]
    world.kill(world.weak)
    undo = broker.disks[0].flip(world.rng, path, world.rng.randrange(size), is_shown=True)
    world.start(world.weak)
    world.inspect(lambda visitor: look_for_damage(visitor, broker, path, undo))
    return f"broker {world.weak} is killed, a bit of {_name(path)} flips, and it is back", lambda: None


def _logs_of_weak(world: World) -> list[list[Path]]:
    """The segments of each partition of the broker whose disks may fail, if others have all that it has."""
    if not (world.is_calm and others_have(world, world.weak)):
        return []
    folders = [
        each for disk in world.brokers[world.weak].disks for each in sorted(Path(disk.folder).glob(f"{TOPIC}-?"))
    ]
    return [sorted(folder.glob("*.log")) for folder in folders]


def _known_bytes(path: Path) -> int:
    """How many bytes of a segment lie below the high watermark that its broker has written down."""
    topic, partition = path.parent.name.rsplit("-", 1)
    end = read_offsets(Files(), f"{path.parents[1]}/{HIGH_WATERMARKS}").get((topic, int(partition)), 0)
    data, position = path.read_bytes(), 0
    while has_header(data, position):
        header = read_any_header(data, position)
        if header.last_offset >= end:
            break
        position += header.size
    return position


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
