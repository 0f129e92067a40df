"""Classic members in a group of the newer protocol, while its clients are moved from one to the other (KIP-848).

    classic group  ──first member of the newer protocol joins──▶  mixed group  ──last of them leaves──▶  classic group

A classic member of a mixed group joins, syncs and sends heartbeats as ever, but nobody waits for the others: it is
answered at once with what the coordinator has assigned to it. Its generation is its member epoch; a heartbeat tells it
to join again whenever it has a step to take towards its target.
"""

from __future__ import annotations

from kbroker.coordinator import consumer_records as records
from kbroker.coordinator import group_sentences as told
from kbroker.coordinator.consumer_group import ConsumerGroup, TargetAssignment
from kbroker.coordinator.consumer_member import ClassicMembership, ConsumerMember, MemberState, Partitions
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import JoinAnswer, JoinRequest, Leaving, SyncAnswer
from kbroker.coordinator.member import Member
from kbroker.coordinator.subscriptions import CONSUMER_PROTOCOL_TYPE, MOST_TOPICS
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kbroker.protocol.versioned import decode_versioned, encode_versioned, version_of

NEWEST_ASSIGNMENT = 3


class MixedGroup(ConsumerGroup):
    """A group of the newer protocol that takes classic members, too."""

    @property
    def is_all_classic(self) -> bool:
        """Whether all members speak the classic protocol, so that the group can go on as a classic one."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    # --- requests of classic members --------------------------------------------------------------------------

    def join_classic(self, request: JoinRequest, now: int) -> JoinAnswer:
        """JoinGroup. Raises KafkaError with the code to be answered."""
        common = self._common_protocols(request)
        if not request.member_id and request.group_instance_id is None and request.requires_member_id:
            return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
        subscription = _subscription(request.protocols[0][1])
        names = frozenset(subscription.topics)
        self.subscribed.check_variety(self.members, request.member_id, names)
        member = self._admit_classic(request, now)
        before = member.subscription()
        is_new = member.member_id not in self.target.members
        changed_from = (member.topic_names, member.rack_id)
        member.topic_names, member.rack_id = self.subscribed.same(names), subscription.rack_id
        member.topic_regex = member.server_assignor = None
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.classic = ClassicMembership(request.session_timeout_ms, request.protocols)
        if is_new or member.subscription() != before:
            self._out.append(records.member_metadata(self.group_id, member))
        why = None
        if is_new:
            why = self._told_of_new(member, now, request.reason)
        elif changed_from != (member.topic_names, member.rack_id):
            why = told.subscribed_anew(member, self._other_topics(member, changed_from[0]), request.reason)
        self._advance(member, why, self._owned(subscription), now)
        return JoinAnswer(ErrorCode.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, common[0], leader="")

    def sync_classic(
        self, member_id: str, instance_id: str | None, generation_id: int, protocol: tuple[str | None, str | None]
    ) -> SyncAnswer:
        """SyncGroup: the member's assignment as it is now. Raises KafkaError."""
        member = self._classic_member(member_id, instance_id, generation_id)
        assert member.classic is not None
        names = [name for name, _ in member.classic.protocols]
        protocol_type, protocol_name = protocol
        if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (None, *names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        name = protocol_name or names[0]
        return SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, name, self._assignment(member))

    def heartbeat_classic(self, member_id: str, instance_id: str | None, generation_id: int, now: int) -> ErrorCode:
        """Heartbeat: 27 when the member has to join again. Raises KafkaError."""
        member = self._classic_member(member_id, instance_id, generation_id)
        self._heard_of(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self._has_a_step_to_take(member) else ErrorCode.NONE

    def read_error(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Return whether a member that tells its epoch is up to date, in words of its protocol."""
        error = super().read_error(member_id, instance_id, epoch)
        if error is ErrorCode.STALE_MEMBER_EPOCH and self.member(member_id, instance_id).classic is not None:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def leave_classic(self, leaving: Leaving, now: int) -> ErrorCode:
        """One of a LeaveGroup's members; an empty member id removes whoever has the instance id."""
        member_id, instance_id, reason = leaving
        try:
            known_id = member_id or self.static_members.get(instance_id or "", "")
            member = self.member(known_id, instance_id)
        except KafkaError as error:
            return error.code
        self._remove(member, now)
        self._bump(now, told.left(member, reason))
        return ErrorCode.NONE

    def _common_protocols(self, request: JoinRequest) -> list[str]:
        """Return the protocols of the joining member that all classic members have."""
        names = [name for name, _ in request.protocols]
        for member in self.members.values():
            if member.classic is not None and member.member_id != request.member_id:
                theirs = {name for name, _ in member.classic.protocols}
                names = [name for name in names if name in theirs]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return names

    def _admit_classic(self, request: JoinRequest, now: int) -> ConsumerMember:
        instance_id = request.group_instance_id
        former_id = None if instance_id is None else self.static_members.get(instance_id)
        if former_id is not None and not request.member_id:
            return self._replace_static_member(self.members[former_id], request.new_member_id, now)
        if former_id is not None and former_id != request.member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        known = self.members.get(request.member_id)
        if known is None:
            return self._add(request.member_id or request.new_member_id, instance_id)
        if known.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return known

    def _classic_member(self, member_id: str, instance_id: str | None, generation_id: int) -> ConsumerMember:
        member = self.member(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _has_a_step_to_take(self, member: ConsumerMember) -> bool:
        if member.epoch < self.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        target = self.target.members.get(member.member_id, {})
        return all(
            self._is_free((topic, number), member.member_id) for topic, numbers in target.items() for number in numbers
        )

    # --- what classic members send and get --------------------------------------------------------------------

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Partitions:
        owned: dict[bytes, set[int]] = {}
        for topic in subscription.owned_partitions:
            known = self._topics.topics.get(topic.topic)
            if known is not None and topic.partitions:
                owned.setdefault(known.topic_id, set()).update(topic.partitions)
        return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}

    def _assignment(self, member: ConsumerMember) -> bytes:
        assert member.classic is not None
        names = {topic_id: name for name, (topic_id, _) in self.subscribed.known.items()}
        partitions = [
            ConsumerProtocolAssignment.TopicPartition(topic=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in member.assigned.items()
            if topic_id in names
        ]
        version = min(version_of(member.classic.protocols[0][1]), NEWEST_ASSIGNMENT)
        return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions), version)

    # --- from a classic group, and back -----------------------------------------------------------------------

    def take_over(self, group: Group) -> None:
        """Begin with the members of a classic group; raises KafkaError when they are no consumers."""
        if not group.is_consumer_group:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is a classic group of {group.protocol_type}"
            )
        self.epoch = group.generation_id
        members = [self._from_classic(member, group) for member in group.members.values()]
        self.members = {member.member_id: member for member in members}
        self.target = TargetAssignment(self.epoch, {member.member_id: member.assigned for member in members})
        self._out.append(records.group_epoch(self.group_id, self.epoch))
        self._out += [records.member_metadata(self.group_id, member) for member in members]
        self._out.append(records.target_epoch(self.group_id, self.epoch))
        self._out += [records.target_member(self.group_id, member.member_id, member.assigned) for member in members]
        self._out += [records.current_assignment(self.group_id, member) for member in members]

    def _from_classic(self, member: Member, group: Group) -> ConsumerMember:
        subscription = _subscription(member.metadata(group.protocol_name) or member.protocols[0][1])
        return ConsumerMember(
            member.member_id,
            member.group_instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMembership(member.session_timeout_ms, member.protocols),
            epoch=group.generation_id,
            previous_epoch=group.generation_id,
            assigned=self._partitions(member.assignment),
        )

    def _partitions(self, assignment: bytes) -> Partitions:
        if not assignment:
            return {}
        try:
            read = decode_versioned(ConsumerProtocolAssignment, assignment, newer_as_newest=True)
        except MalformedMessage:
            return {}  # the member gets another one before long
        topics = self._topics.topics
        return {
            topics[each.topic].topic_id: frozenset(each.partitions)
            for each in read.assigned_partitions
            if each.topic in topics and each.partitions
        }

    def hand_over(self, group: Group, now: int) -> None:
        """Let a fresh classic group go on with the members, who are all classic."""
        for member in self.members.values():
            assert member.classic is not None
            classic = Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                self._assignment(member),
            )
            group.insert(classic, CONSUMER_PROTOCOL_TYPE)
        group.adopt(self.epoch, now)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return decode_versioned(ConsumerProtocolSubscription, metadata, newer_as_newest=True, most_elements=MOST_TOPICS)
    except MalformedMessage as error:
        message = f"the subscription cannot be read: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from None
