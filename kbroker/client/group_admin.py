"""Administration of groups: their members, their committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, ConfigurationError, error_for
from kbroker.client.group.commits import Commits, checked_offsets
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.subscriptions import decode_assignment, decode_subscription
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.partition_names import Key, Partition, partition_of, partitions_of
from kbroker.client.types import (
    EARLIEST,
    LATEST,
    GroupDescription,
    GroupListing,
    GroupRebalance,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from kbroker.client.values import brokers_of, text, texts, whole_number
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)

CONSUMER_PROTOCOL = "consumer"
PLACES = {"earliest": EARLIEST, "latest": LATEST}
OTHER_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""What a coordinator says when a group is not of the newer protocol, or it has no such groups."""


class GroupAdmin:
    """Admin's calls about groups."""

    cluster: Cluster

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), brokers: Iterable[int] | None = None
    ) -> dict[str, GroupListing]:
        """Return all groups, or those in some states ("Stable", "Empty"…) or of some types ("classic", "consumer").

        `brokers`: only the groups that these coordinate.
        """
        request = ListGroupsRequest(states_filter=texts(states), types_filter=texts(types))
        if brokers is None:
            await self.cluster.refresh()
        nodes = sorted(self.cluster.metadata.nodes if brokers is None else brokers_of(brokers))
        answers = await asyncio.gather(*(self._list_groups(request, node) for node in nodes))
        found = {group.group_id: group for answer in answers for group in answer.groups}
        return {
            group_id: GroupListing(group_id, group.protocol_type, group.group_state, group.group_type or "classic")
            for group_id, group in sorted(found.items())
        }

    async def _list_groups(self, request: ListGroupsRequest, node: int) -> Any:
        async for _ in self.cluster.attempts(self.cluster.config.request_timeout_ms):
            answer = await self.cluster.ask(request, node)
            if answer.error_code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, "groups cannot be listed", broker=node)
        return answer

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups; one that does not exist has the state "Dead"."""
        wanted = texts(group_ids)
        described = await asyncio.gather(*(self._describe_group(group_id) for group_id in wanted))
        return dict(zip(wanted, described, strict=True))

    async def _describe_group(self, group_id: str) -> GroupDescription:
        coordinator = Coordinator(self.cluster, group_id)
        try:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            answer = await coordinator.ask_until_taken(request, lambda answer: answer.groups[0].error_code)
        except KafkaError as error:
            if error.code not in OTHER_KIND:
                raise
        else:
            return _consumer_group(answer.groups[0], await coordinator.find())
        classic = DescribeGroupsRequest(groups=[group_id])
        answer = await coordinator.ask_until_taken(classic, lambda answer: answer.groups[0].error_code)
        return _classic_group(answer.groups[0], await coordinator.find())

    async def group_history(self, group_id: str) -> tuple[GroupRebalance, ...]:
        """Return the last rebalances of a group, the oldest first: when, why, how long it stood still, what to change.

        Each broker tells what happened while it coordinated the group, as far back as `group.history.size` goes and as
        it has been running; one that cannot be reached tells nothing. Raises UnsupportedVersionError when no broker
        tells: Kafka's do not.
        """
        request = DescribeGroupsRequest(groups=[text("a group", group_id)], include_history=True)
        await self.cluster.refresh()
        nodes = sorted(self.cluster.metadata.nodes)
        asked = (self.cluster.ask(request, node) for node in nodes)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        told = {}
        for node, answer in zip(nodes, answers, strict=True):
            if not isinstance(answer, BaseException):
                told[node] = answer.groups[0]
            elif not isinstance(answer, KafkaError | OSError):
                raise answer
        if not told:
            raise next(each for each in answers if isinstance(each, BaseException))
        for node, group in told.items():
            if group.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise error_for(group.error_code, f"group {group_id} may not be described", broker=node)
        if all(group.history is None for group in told.values()):
            why = "no broker of this cluster tells why groups rebalance: kbroker's do, Kafka's do not"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, why)
        history = [_rebalance(node, each) for node, group in told.items() for each in group.history or ()]
        return tuple(sorted(history, key=lambda each: each.timestamp_ms))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, with their committed offsets; raises for the first that cannot be."""
        for group_id in texts(group_ids):
            request = DeleteGroupsRequest(groups_names=[group_id])
            await Coordinator(self.cluster, group_id).ask_until_taken(
                request, lambda answer: answer.results[0].error_code
            )

    async def remove_group_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] | None = None,
        member_ids: Iterable[str] | None = None,
        reason: str = "removed by an administrator",
    ) -> None:
        """Have members leave a group at once, by group_instance_id or by id (neither: all); raises the first error.

        A static member that is gone for good holds its partitions until its session ends: others have them after this.
        One that is alive joins again, unless it is static: then it is fenced.
        """
        one = LeaveGroupRequest.MemberIdentity
        if instance_ids is None and member_ids is None:
            group = (await self.describe_groups([group_id]))[group_id]
            known = [(each.member_id, each.group_instance_id) for each in group.members]
        else:
            known = [("", name) for name in texts(instance_ids or ())]
            known += [(name, None) for name in texts(member_ids or ())]
        if not known:
            return
        why = text("a reason", reason)
        members = [one(member_id=member, group_instance_id=name, reason=why) for member, name in known]
        request = LeaveGroupRequest(group_id=text("a group", group_id), members=members)
        answer = await Coordinator(self.cluster, group_id).ask_until_taken(request, lambda answer: answer.error_code)
        for item in answer.members:
            if item.error_code is not ErrorCode.NONE:
                name = item.group_instance_id or item.member_id
                raise error_for(item.error_code, f"member {name} of group {group_id}")

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[Partition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets (None: of all partitions that have one).

        `require_stable`: wait while a transaction that is open may still change them.
        """
        coordinator = Coordinator(self.cluster, text("a group", group_id))
        found = await Commits(coordinator).committed(partitions, require_stable=require_stable)
        return {key: committed for key, committed in found.items() if committed is not None}

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[Key, int | OffsetAndMetadata]) -> None:
        """Commit offsets for a group that has no members now."""
        wanted = checked_offsets(offsets)
        text("a group", group_id)
        try:
            await Commits(Coordinator(self.cluster, group_id)).commit(wanted)
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            advice = f"group {group_id} has members: stop them before its offsets are changed"
            raise error_for(ErrorCode.NON_EMPTY_GROUP, advice) from None

    async def reset_group_offsets(
        self,
        group_id: str,
        topics: Iterable[str] | Iterable[Partition],
        to: int | str,
        *,
        dry_run: bool = False,
    ) -> dict[TopicPartition, int]:
        """Move a group without members to "earliest", "latest" or the first record since a time in ms; returns where.

        `topics` are names or single partitions. `dry_run` only says where it would be.
        """
        if isinstance(to, str):
            if to not in PLACES:
                raise ConfigurationError(f"to is 'earliest', 'latest' or milliseconds since 1970, not {to!r}")
            place = PLACES[to]
        else:
            place = whole_number("to ('earliest', 'latest' or milliseconds since 1970)", to, 64)
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise ConfigurationError(f"a list of topics or partitions is wanted, not {topics!r}")
        items = list(topics)
        names = [item for item in items if isinstance(item, str)]
        if names:
            await self.cluster.refresh(names, alone=True)  # they may have more partitions now
        partitions: list[TopicPartition] = []
        for item in items:
            if isinstance(item, str):
                known = await self.cluster.topic(item, auto_create=False)
                partitions += [TopicPartition(item, index) for index in sorted(known.partitions)]
            else:
                partitions.append(partition_of(item))
        found = await list_offsets(self.cluster, dict.fromkeys(partitions, place))
        late = [key for key, item in found.items() if item.offset < 0]
        if late:
            found |= await list_offsets(self.cluster, dict.fromkeys(late, LATEST))
        offsets = {key: found[key].offset for key in partitions}
        if not dry_run:
            await self.alter_group_offsets(group_id, offsets)
        return offsets

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[Partition]) -> None:
        """Delete committed offsets of topics that no member subscribes to; raises the first error."""
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions_of(partitions)).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        coordinator = Coordinator(self.cluster, text("a group", group_id))
        answer = await coordinator.ask_until_taken(request, lambda answer: answer.error_code)
        for topic in answer.topics:
            for item in topic.partitions:
                if item.error_code is not ErrorCode.NONE:
                    raise error_for(item.error_code, topic=topic.name, partition=item.partition_index)


def _classic_group(group: DescribeGroupsResponse.DescribedGroup, coordinator: int) -> GroupDescription:
    members = tuple(_classic_member(group.protocol_type, item) for item in group.members)
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        members,
        last_rebalance=group.last_rebalance,
    )


def _rebalance(broker: int, told: DescribeGroupsResponse.GroupRebalance) -> GroupRebalance:
    return GroupRebalance(
        broker,
        told.timestamp_ms,
        None if told.duration_ms < 0 else told.duration_ms,
        told.generation_id,
        told.member_count,
        tuple(told.reasons),
        told.outcome,
        tuple(told.advice),
    )


def _classic_member(protocol_type: str, item: DescribeGroupsResponse.DescribedGroupMember) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == CONSUMER_PROTOCOL and item.member_metadata:
        try:
            topics = decode_subscription(bytes(item.member_metadata)).topics
            assignment = decode_assignment(bytes(item.member_assignment))
        except MalformedMessage:
            pass  # a member's own affair: the others are described none the less
    return MemberDescription(
        item.member_id, item.group_instance_id, item.client_id, item.client_host, topics, assignment
    )


def _consumer_group(group: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: int) -> GroupDescription:
    members = tuple(
        MemberDescription(
            item.member_id,
            item.instance_id,
            item.client_id,
            item.client_host,
            tuple(item.subscribed_topic_names),
            _partitions(item.assignment),
            item.member_epoch,
            _partitions(item.target_assignment),
        )
        for item in group.members
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        CONSUMER_PROTOCOL,
        group.assignor_name,
        coordinator,
        members,
        group.group_epoch,
    )


def _partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(item.topic_name, index) for item in assignment.topic_partitions for index in item.partitions
        )
    )
