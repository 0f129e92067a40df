"""A group of the newer protocol (KIP-848): members only send heartbeats, the coordinator assigns (pure).

    heartbeat ──▶ member joins, changes its subscription ──┐
    topics come, go, grow ─────────────────────────────────┼─▶ group epoch + 1 ─▶ new target assignment
    member leaves, is not heard of, does not give up ──────┘                              │
                         each member goes step by step to its target (consumer_member.py) ◀┘

Every event returns at once; what it changed is in `take_records()`, to be appended to __consumer_offsets before the
answer is sent. Should that fail, the group in memory is ahead of the log and has to be read anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from kbroker.coordinator import consumer_records as records
from kbroker.coordinator import group_sentences as told
from kbroker.coordinator.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
    difference,
    union,
)
from kbroker.coordinator.group_offsets import GroupOffsets
from kbroker.coordinator.group_story import GroupStory
from kbroker.coordinator.group_topics import GroupTopics
from kbroker.coordinator.member import NEVER
from kbroker.coordinator.server_assignors import ASSIGNORS
from kbroker.coordinator.subscriptions import CONSUMER_PROTOCOL_TYPE
from kbroker.coordinator.topic_log import Record
from kbroker.coordinator.topic_patterns import TopicPattern, Topics
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.security.authorizer import EVERYTHING, Everything

MUCH = 500
"""Partitions that are assigned in a millisecond or two."""
DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The broker's keys that a group's decisions depend on."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = (1 << 31) - 1
    default_assignor: str = DEFAULT_ASSIGNOR


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request. None: as in the heartbeat before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    pattern: TopicPattern | None = None
    """What has been made of the expression, where that is new to the group."""
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    authority: Everything = EVERYTHING
    """What the member may do: a pattern does not match what it may not describe."""

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as after a lost answer: it is told everything, too."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.epoch == JOIN_EPOCH or (self.rebalance_timeout_ms >= 0 and subscribes and self.owned is not None)


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """What a heartbeat gets."""

    member_id: str
    epoch: int
    assigned: Partitions | None = None
    """None: as before."""


@dataclass(slots=True)
class TargetAssignment:
    """Who shall have what, as of an epoch of the group."""

    epoch: int = 0
    members: dict[str, Partitions] = field(default_factory=dict)


class ConsumerGroup:
    """One group. `deadline` tells when to call `tick` next."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_consumer_group = True
    """Its members are consumers, and what they read is known."""

    def __init__(
        self,
        group_id: str,
        settings: ConsumerSettings,
        topics: Topics,
        partition: int = 0,
        story: GroupStory | None = None,
    ) -> None:
        self.story = GroupStory(group_id) if story is None else story
        self.group_id = group_id
        self.partition = partition
        """Of __consumer_offsets: where its records are."""
        self.settings = settings
        self.offsets = GroupOffsets()
        self.deadline = NEVER
        self.scheduled_at = NEVER
        """For the owner of the clock: when it will call `tick`."""
        self.epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """instance id -> member id"""
        self.target = TargetAssignment()
        self.subscribed = GroupTopics(topics)
        self.is_dead = False
        self._topics = topics
        self._read_by: dict[str, frozenset[str]] = {}
        """Who -> names of the topics that targets were made with last; nobody since the group was read from the log."""
        self._owners: dict[tuple[bytes, int], str] = {}
        """Who has a partition, or has still to give it up."""
        self._held: dict[str, list[tuple[bytes, int]]] = {}
        """The same, by who has them."""
        self._out: list[Record] = []

    # --- heartbeats -------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, now: int) -> ConsumerAnswer:
        """A member joins, stays or leaves. Raises KafkaError with the code that it is answered."""
        if request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, now)
        pattern = self._check_request(request)
        self.subscribed.check_variety(
            self.members, request.member_id, request.topic_names, request.topic_regex, pattern
        )
        member = self._admit(request, now)
        if request.topic_regex and pattern is not None:
            self.subscribed.patterns[request.topic_regex] = pattern
        before = member.assigned
        if member.authority is not request.authority:
            member.authority, member.seen_rules = request.authority, -1
        self._advance(member, self._subscribe(member, request, now), request.owned, now)
        tells = request.is_full or member.assigned != before
        return ConsumerAnswer(member.member_id, member.epoch, member.assigned if tells else None)

    def takes_long(self, request: ConsumerHeartbeat) -> bool:
        """Whether members may have to be assigned anew when this is heard, and there is much to assign."""
        subscribes = request.topic_names is not None or request.topic_regex is not None
        may_assign = subscribes or self.epoch > self.target.epoch or self.subscribed.may_have_changed
        if not may_assign:
            return False
        names = request.topic_names
        wanted = max(self.subscribed.partitions_of(names, request.pattern), len(names or ()))
        return self.subscribed.partitions + wanted > MUCH

    def _advance(self, member: ConsumerMember, why: told.Told | None, owned: Partitions | None, now: int) -> None:
        """After what a member said: a new target where one is needed, and the member's next step towards it.

        `why`: what the member changed that may change assignments.
        """
        before = self.subscribed.known
        may_read_others = self._may_read_others(member)
        has_other_topics = self._refresh_topics(why is not None or may_read_others)
        if why is not None:
            self._bump(now, why)
        elif has_other_topics:
            self._bump(now, told.topics_changed(before, self.subscribed.known))
        elif may_read_others:
            self._bump(now, told.may_read_others(member))
        if self.epoch > self.target.epoch:
            self._assign()
        self._reconcile(member, owned, now)
        self._heard_of(member, now)

    def _check_request(self, request: ConsumerHeartbeat) -> TopicPattern | None:
        """Return what its expression is; whoever brings it may yet be refused."""
        if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"assignor {request.server_assignor} is not known here; there are {', '.join(ASSIGNORS)}",
            )
        regex = request.topic_regex
        return (request.pattern or self.subscribed.pattern_of(regex)) if regex else None

    def _admit(self, request: ConsumerHeartbeat, now: int) -> ConsumerMember:
        if request.epoch == JOIN_EPOCH:
            return self._join(request, now)
        member = self.member(request.member_id, request.instance_id)
        if request.epoch > member.epoch:
            raise _fenced(request.epoch, member.epoch)
        if request.epoch < member.epoch:
            # The answer with the new epoch may have been lost: then it still has what it had, or less.
            is_behind = request.epoch == member.previous_epoch and request.owned is not None
            if not is_behind or difference(request.owned or {}, member.assigned):
                raise _fenced(request.epoch, member.epoch)
        return member

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member. Raises KafkaError 25 for one that is unknown, 82 when its instance id is another's."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is not in the group")
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} is another member's by now")
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in group {self.group_id}")
        return member

    def _join(self, request: ConsumerHeartbeat, now: int) -> ConsumerMember:
        former_id = None if request.instance_id is None else self.static_members.get(request.instance_id)
        if former_id is not None and former_id != request.member_id:
            former = self.members[former_id]
            if former.epoch != LEAVE_STATIC_EPOCH and former.classic is None:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {request.instance_id} is in use by {former_id}"
                )
            return self._replace_static_member(former, request.member_id, now)
        known = self.members.get(request.member_id)
        if known is None:
            return self._add(request.member_id, request.instance_id)
        if known.epoch == LEAVE_STATIC_EPOCH:
            known.move_to(JOIN_EPOCH)
        return known

    def _add(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if len(self.members) >= self.settings.max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(self.members)} members, as many as it may have"
            )
        member = self.members[member_id] = ConsumerMember(member_id, instance_id)
        if instance_id is not None:
            self.static_members[instance_id] = member_id
        return member

    def _replace_static_member(self, former: ConsumerMember, member_id: str, now: int) -> ConsumerMember:
        """The static member is back under another id and goes on where it was."""
        former_id = former.member_id
        self._out += records.member_tombstones(self.group_id, former.member_id)
        del self.members[former.member_id]
        self._disown(former_id)
        target = self.target.members.pop(former.member_id, {})
        if former_id in self._read_by:
            self._read_by[member_id] = self._read_by.pop(former_id)
        former.member_id = member_id
        former.move_to(JOIN_EPOCH)
        self.members[member_id] = former
        assert former.instance_id is not None
        self.static_members[former.instance_id] = member_id
        self.target.members[member_id] = target
        self._own(former)
        self.story.note(now, told.came_back(former.instance_id, former, former_id))
        self._out.append(records.member_metadata(self.group_id, former))
        self._out.append(records.target_member(self.group_id, member_id, target))
        self._out.append(records.current_assignment(self.group_id, former))
        return former

    def _leave(self, request: ConsumerHeartbeat, now: int) -> ConsumerAnswer:
        member = self.member(request.member_id, request.instance_id)
        if request.epoch == LEAVE_STATIC_EPOCH and member.instance_id is not None:
            member.move_to(LEAVE_STATIC_EPOCH)
            member.assigned = union(member.assigned, member.pending_revocation)
            member.pending_revocation = {}
            member.state = MemberState.STABLE
            self._out.append(records.current_assignment(self.group_id, member))
            self.story.note(now, told.went_for_now(member.instance_id, self._session_timeout_ms(member)))
        else:
            self._remove(member, now)
            self._bump(now, told.left(member))
        return ConsumerAnswer(request.member_id, request.epoch)

    def _subscribe(self, member: ConsumerMember, request: ConsumerHeartbeat, now: int) -> told.Told | None:
        """Take over what the member says of itself; returns what may change assignments."""
        before = member.subscription()
        what_counts = (member.topic_names, member.topic_regex, member.rack_id, member.server_assignor)
        is_new = member.epoch == JOIN_EPOCH and member.member_id not in self.target.members
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.topic_names is not None:
            member.topic_names = self.subscribed.same(request.topic_names)
        if request.server_assignor is not None:
            member.server_assignor = request.server_assignor
        if request.topic_regex is not None:
            member.topic_regex = request.topic_regex or None
        member.client_id, member.client_host = request.client_id, request.client_host
        member.classic = None
        if is_new or member.subscription() != before:
            self._out.append(records.member_metadata(self.group_id, member))
        if is_new:
            return self._told_of_new(member, now)
        counts_now = (member.topic_names, member.topic_regex, member.rack_id, member.server_assignor)
        if what_counts == counts_now:
            return None
        return told.subscribed_anew(member, self._other_topics(member, what_counts[0]))

    def _other_topics(self, member: ConsumerMember, before: frozenset[str]) -> str:
        """Say which topics it reads now and did not, or no longer: by name, and by its pattern."""
        matched = self._read_by.get(member.member_id)
        if matched is None:
            return told.other_topics(before, member.topic_names)
        return told.other_topics(before | matched, member.topic_names.union(*self.subscribed.read_by([member])))

    def _told_of_new(self, member: ConsumerMember, now: int, reason: str = "") -> told.Told:
        gone_for_ms = self.story.gone_for_ms(now, member.client_id)
        return told.joined(member, reason, member.instance_id is not None, gone_for_ms)

    # --- topics and targets -----------------------------------------------------------------------------------

    def _may_read_others(self, member: ConsumerMember) -> bool:
        """Whether a pattern means other topics than targets were made with last, by the access rules of now."""
        authority = member.authority
        if member.topic_regex is None or authority is None or authority.version == member.seen_rules:
            return False
        member.seen_rules, member.look = authority.version, None
        [names] = self.subscribed.read_by([member])
        before = self._read_by.get(member.member_id)
        if before is not None:
            return before != names
        # The coordinator before this one made the target: what it has is known, not what it was made of.
        self.subscribed.look_again()
        may = {self._topics.topics[name].topic_id for name in names}
        return not may.issuperset(self.target.members.get(member.member_id, ()))

    def _refresh_topics(self, is_changed: bool) -> bool:
        """Look at the topics again when they, or subscriptions, may have changed; True when those of the group have."""
        if is_changed:
            self.subscribed.look_again()
        if not self.subscribed.refresh(self.members.values()):
            return False
        self._out.append(records.topic_metadata(self.group_id, self.subscribed.known))
        return True

    def _bump(self, now: int, *why: told.Told) -> None:
        for each in why:
            self.story.begin(now, each)
        if not self.members:
            self.story.end_empty(now, self.epoch + 1)
        self.epoch += 1
        self._out.append(records.group_epoch(self.group_id, self.epoch))

    @property
    def assignor(self) -> str:
        """The name of the assignor that most members want."""
        wanted = [member.server_assignor for member in self.members.values() if member.server_assignor is not None]
        return max(sorted(set(wanted)), key=wanted.count) if wanted else self.settings.default_assignor

    def _assign(self) -> None:
        counts = dict(self.subscribed.known.values())
        # Static members first, by what does not change when they come back: so they keep their ranges.
        members_in_order = sorted(
            self.members.values(), key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id)
        )
        read_by = self.subscribed.read_by(members_in_order)
        self._read_by = {each.member_id: names for each, names in zip(members_in_order, read_by, strict=True)}
        ids = {
            names: frozenset(self.subscribed.known[name][0] for name in names if name in self.subscribed.known)
            for names in dict.fromkeys(read_by)
        }
        subscriptions = {member_id: ids[names] for member_id, names in self._read_by.items()}
        former = self.target.members
        members = ASSIGNORS[self.assignor](subscriptions, counts, former)
        for member_id, partitions in members.items():
            if former.get(member_id) != partitions:
                self._out.append(records.target_member(self.group_id, member_id, partitions))
        self.target = TargetAssignment(self.epoch, members)
        self._out.append(records.target_epoch(self.group_id, self.epoch))

    # --- reconciliation ---------------------------------------------------------------------------------------

    def _reconcile(self, member: ConsumerMember, owned: Partitions | None, now: int) -> None:
        before = member.current()
        target = self.target.members.get(member.member_id, {})
        member.reconcile(self.target.epoch, target, owned, lambda *part: self._is_free(part, member.member_id))
        if member.current() != before:
            self._own(member)
            self._out.append(records.current_assignment(self.group_id, member))
            if member.is_reconciled_to(self.target.epoch):
                self.story.came(now, member)
                self._end_rebalance(now)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            member.revocation_deadline = NEVER
        elif member.revocation_deadline == NEVER:
            member.revocation_deadline = now + max(member.rebalance_timeout_ms, 0)

    def _end_rebalance(self, now: int) -> None:
        """Tell that everybody has what they shall read, if they have."""
        epoch = self.epoch
        if self.story.open is None or self.target.epoch != epoch:
            return
        away = LEAVE_STATIC_EPOCH
        if all(each.is_reconciled_to(epoch) or each.epoch == away for each in self.members.values()):
            self.story.end(now, self.epoch, len(self.members), None, is_cooperative=True)

    def _is_free(self, partition: tuple[bytes, int], member_id: str) -> bool:
        return self._owners.get(partition, member_id) == member_id

    def _own(self, member: ConsumerMember) -> None:
        """Note what a member has now, and what it has no longer."""
        self._disown(member.member_id)
        held = [*_each(member.assigned), *_each(member.pending_revocation)]
        self._owners.update(dict.fromkeys(held, member.member_id))
        self._held[member.member_id] = held

    def _disown(self, member_id: str) -> None:
        for part in self._held.pop(member_id, ()):
            if self._owners.get(part) == member_id:
                del self._owners[part]

    # --- the end of members -----------------------------------------------------------------------------------

    def _heard_of(self, member: ConsumerMember, now: int) -> None:
        member.deadline = now + self._session_timeout_ms(member)
        self.deadline = min(self.deadline, member.deadline, member.revocation_deadline)

    def _session_timeout_ms(self, member: ConsumerMember) -> int:
        return self.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def _remove(self, member: ConsumerMember, now: int) -> None:
        self.story.gone(now, member.client_id)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self.target.members.pop(member.member_id, None)
        self._disown(member.member_id)
        self._out += records.member_tombstones(self.group_id, member.member_id)

    def tick(self, now: int) -> list[str]:
        """Remove members that were not heard of or did not give up in time; returns a line for the log about each."""
        reasons = []
        for member in list(self.members.values()):
            if member.deadline <= now:
                why = told.expired(member, self._session_timeout_ms(member), member.instance_id is not None)
            elif member.revocation_deadline <= now:
                why = told.kept_partitions(member)
            else:
                continue
            reasons.append(why)
            self._remove(member, now)
        if reasons:
            self._bump(now, *reasons)
        deadlines = (min(member.deadline, member.revocation_deadline) for member in self.members.values())
        self.deadline = min(deadlines, default=NEVER)
        return [why.what for why in reasons]

    def restore(self, stored: records.StoredGroup) -> None:
        """Make a fresh group what the log says; `start` it then."""
        self.epoch = stored.epoch
        self.subscribed.take(stored.topics)
        self.members = stored.members
        for member in self.members.values():
            member.topic_names = self.subscribed.same(member.topic_names)
        targets = {member_id: stored.targets[member_id] for member_id in stored.members if member_id in stored.targets}
        self.target = TargetAssignment(stored.target_epoch, targets)

    def start(self, now: int) -> None:
        """The group has been read from the log: its members get a fresh time."""
        for member in self.members.values():
            if (regex := member.topic_regex) is not None:
                self.subscribed.patterns[regex] = self.subscribed.pattern_of(regex)
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
            self._own(member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                member.revocation_deadline = now + max(member.rebalance_timeout_ms, 0)
            self._heard_of(member, now)

    def die(self) -> None:
        """The group is deleted, or this broker is not its coordinator any more."""
        self.is_dead = True
        self.deadline = NEVER

    def tombstones(self) -> list[Record]:
        """Return what removes the group from the log, its offsets apart."""
        gone = [each for member_id in self.members for each in records.member_tombstones(self.group_id, member_id)]
        return gone + records.group_tombstones(self.group_id)

    # --- what it says about itself ----------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The name on the wire."""
        if self.is_dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.epoch > self.target.epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target.epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members and not self.is_dead

    @property
    def is_expected(self) -> bool:
        """Whether somebody is about to join it: members of this protocol never say so."""
        return False

    def take_records(self) -> list[Record]:
        """Return what has to be written before anybody is answered."""
        taken, self._out = self._out, []
        return taken

    def has_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.subscribed.known

    def commit_error(
        self, member_id: str, instance_id: str | None, epoch: int, now: int, is_transactional: bool = False
    ) -> ErrorCode:
        """Return whether an offset commit of this member may be stored."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and (not self.members or (is_transactional and not member_id and instance_id is None)):
            return ErrorCode.NONE
        return self.read_error(member_id, instance_id, epoch)

    def read_error(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Return whether a member that tells its epoch is up to date: 25, 82, 113 when it is not."""
        try:
            member = self.member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def expired_offsets(self, now: int, retention_ms: int) -> list[Key]:
        """Return the partitions whose offsets nobody has had use of for the retention time."""
        return self.offsets.expired(now, retention_ms, attrgetter("commit_timestamp"), self.has_subscribed)

    def check(self) -> None:
        """Assert what always holds between events."""
        self.offsets.check()
        assert self.target.epoch <= self.epoch
        assert self.static_members == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        held: set[tuple[bytes, int]] = set()
        for member in self.members.values():
            mine = set(_each(member.assigned)) | set(_each(member.pending_revocation))
            assert not mine & held, "a partition has two owners"
            assert all(self._owners[part] == member.member_id for part in mine)
            assert member.deadline >= self.deadline
            held |= mine
        assert self._owners.keys() == held
        assert self._held.keys() == self.members.keys()
        assert sum(map(len, self._held.values())) == len(held)
        assert self.target.members.keys() <= self.members.keys()


def _fenced(told: int, given: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH, f"the member's epoch is {given}, not {told}; it has to join again with epoch 0"
    )


def _each(partitions: Partitions) -> Iterable[tuple[bytes, int]]:
    return ((topic, number) for topic, numbers in partitions.items() for number in numbers)
