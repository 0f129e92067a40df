"""Every API asked by somebody who may do nothing, and by somebody who may do everything: what each demands.

Both are anonymous and come from addresses of their own, which the rules name: so the broker, too, needs rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.handlers import load_all
from kbroker.handlers.refusals import blank
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.apis import API_BY_KEY, api_of
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
)
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest
from kbroker.protocol.messages.topics import DeleteTopicsRequest
from kbroker.protocol.schema import Struct, schema_of
from kbroker.replica.fetching import MENDING
from kbroker.security.acls import ANONYMOUS, AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from tests.fixtures.brokers import START_TIMEOUT, broker_properties, forget
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.parity.access_requests import in_version, requests_for, versions_to_ask
from tests.parity.transcript import Talk

HOST, GUEST = "127.0.0.1", "127.0.0.2"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
TOPIC_REFUSED, GROUP_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, ID_REFUSED}

REFUSED_WITH = {
    name: codes
    for codes, names in (
        (
            {TOPIC_REFUSED},
            "Fetch ListOffsets OffsetForLeaderEpoch DeleteRecords DescribeProducers CreateTopics CreatePartitions "
            "DeleteTopics",
        ),
        (
            {GROUP_REFUSED},
            "JoinGroup SyncGroup Heartbeat LeaveGroup OffsetCommit OffsetFetch DescribeGroups OffsetDelete "
            "DeleteGroups ConsumerGroupHeartbeat ConsumerGroupDescribe",
        ),
        ({ID_REFUSED}, "AddOffsetsToTxn EndTxn TxnOffsetCommit DescribeTransactions"),
        (
            {CLUSTER_REFUSED},
            "LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown AlterPartition AllocateProducerIds "
            "WriteTxnMarkers ElectLeaders AlterPartitionReassignments ListPartitionReassignments AlterReplicaLogDirs "
            "DescribeLogDirs CreateAcls DescribeAcls DeleteAcls AddPartitionsToTxn "
            "DescribeClientQuotas AlterClientQuotas UpdateFeatures "
            "DescribeUserScramCredentials AlterUserScramCredentials",
        ),
        ({TOPIC_REFUSED, CLUSTER_REFUSED}, "DescribeConfigs AlterConfigs IncrementalAlterConfigs"),
        (
            {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
            "CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken",
        ),
        (set(), "ListGroups ListTransactions DescribeCluster"),
    )
    for name in names.split()
}
"""What the newest version of each API says to somebody who may do nothing; of the others `refusals` knows."""
OF_OTHER_TESTS = {17, 18, 36}
"""APIs before anybody is known."""


def codes_in(value: Any) -> set[ErrorCode]:
    """All errors in an answer."""
    if isinstance(value, ErrorCode):
        return {value}
    if isinstance(value, Struct):
        fields = (getattr(value, field.name) for field in schema_of(type(value)).fields)
        return {code for each in fields for code in codes_in(each)}
    if isinstance(value, list):
        return {code for each in value for code in codes_in(each)}
    return set()


async def write_rules(connect: str, rules: Sequence[tuple[Pattern, Entry]]) -> None:
    """Write rules into ZooKeeper, as before the first broker starts."""
    zookeeper = ZooKeeper(connect)
    await zookeeper.connect()
    try:
        await zookeeper.ensure_acl_paths()
        for pattern, entry in rules:
            await zookeeper.change_acls(pattern, lambda present, new=entry: present | {new})  # type: ignore[misc]
    finally:
        await zookeeper.close()


def everything_from(host: str) -> list[tuple[Pattern, Entry]]:
    """Rules by which who comes from an address may do all."""
    names = {AclResource.CLUSTER: "kafka-cluster"}
    kinds = (AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER, AclResource.TRANSACTIONAL_ID)
    allowed = Entry(ANONYMOUS, host, AclOperation.ALL, AclPermission.ALLOW)
    return [(Pattern(kind, AclPattern.LITERAL, names.get(kind, "*")), allowed) for kind in kinds]


@pytest.fixture(scope="module")
def guarded(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker where everything is allowed from HOST and nothing from elsewhere."""
    address = fresh_chroot(zookeeper_server)
    asyncio.run(write_rules(address.connect_string, everything_from(HOST)))
    properties = broker_properties(address.connect_string, AUTHORIZER)
    process = BrokerProcess(1, tmp_path_factory.mktemp("guarded"), free_ports(1)[0], properties)
    try:
        yield process.start().wait_until_ready(START_TIMEOUT)
    finally:
        forget(process)
        remove_chroot(address)


def test_all_apis_are_asked() -> None:
    load_all()
    asked = {api_of(type(request)).key for request in requests_for(["a"])}
    missing = {API_BY_KEY[key].name for key in HANDLERS.keys() - asked - OF_OTHER_TESTS}
    assert not missing, "they need a request in tests/parity/access_requests.py and a line in the table"


def refusals(request: Any) -> set[ErrorCode]:
    """What the newest version says to somebody who may do nothing."""
    name = api_of(type(request)).name
    if name == "Produce":
        return {ID_REFUSED if request.transactional_id is not None else TOPIC_REFUSED}
    if name == "FindCoordinator":
        return {ID_REFUSED if request.key_type == 1 else GROUP_REFUSED}
    if name == "InitProducerId":
        return {CLUSTER_REFUSED if request.transactional_id is None else ID_REFUSED}
    if name == "Metadata":
        return set() if request.topics is None else {TOPIC_REFUSED}
    return REFUSED_WITH[name]


def test_who_may_do_nothing_is_refused_everywhere(guarded: BrokerProcess) -> None:
    wrong = []
    with contextlib.closing(Talk(guarded.port, "x", GUEST)) as talk:
        for request in requests_for(["secret", "more"]):
            version = versions_to_ask(request)[-1]
            found = codes_in(talk.ask("guest", in_version(request, version), version)) - {ErrorCode.NONE}
            if found != refusals(request):
                wrong.append(f"{api_of(type(request)).name}: {found} instead of {refusals(request)}")
    assert not wrong, "\n".join(wrong)


def test_who_may_do_everything_is_refused_nowhere(guarded: BrokerProcess) -> None:
    wrong = []
    with contextlib.closing(Talk(guarded.port, "x", HOST)) as talk:
        for request in requests_for(["open"]):
            for version in versions_to_ask(request):
                refused = codes_in(talk.ask("host", in_version(request, version), version)) & REFUSALS
                if refused:
                    wrong.append(f"{api_of(type(request)).name} v{version}: {refused}")
    assert not wrong, "\n".join(wrong)


def test_a_topic_that_may_not_be_described_looks_as_if_there_were_none(guarded: BrokerProcess) -> None:
    with (
        contextlib.closing(Talk(guarded.port, "x", HOST)) as host,
        contextlib.closing(Talk(guarded.port, "x", GUEST)) as guest,
    ):
        compare_what_is_seen(host, guest)


def compare_what_is_seen(host: Talk, guest: Talk) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    wanted = [topic(name="there"), topic(name="nowhere")]
    seen = host.ask("made", MetadataRequest(topics=wanted[:1], allow_auto_topic_creation=True), 12).topics[0]
    answer = guest.ask("hidden", MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12)
    for told in answer.topics:
        assert (told.error_code, told.topic_id, told.is_internal) == (TOPIC_REFUSED, bytes(16), False)
        assert not told.partitions
    assert {told.name for told in answer.topics} == {"there", "nowhere"}
    by_id = guest.ask("by id", MetadataRequest(topics=[topic(name=None, topic_id=seen.topic_id)]), 12)
    if seen.topic_id != bytes(16):
        (told,) = by_id.topics
        assert (told.error_code, told.name, told.topic_id) == (TOPIC_REFUSED, None, seen.topic_id)
    names = {each.name for each in host.ask("all", MetadataRequest(topics=None), 12).topics}
    assert "nowhere" not in names, "who may not describe it does not create it"
    assert not guest.ask("all", MetadataRequest(topics=None), 12).topics


def rule(operation: int) -> dict[str, Any]:
    return {"principal": ANONYMOUS, "host": GUEST, "operation": operation, "permission_type": AclPermission.ALLOW}


def test_who_may_know_a_topic_but_not_delete_it_is_told_its_name(guarded: BrokerProcess) -> None:
    by_name = MetadataRequest.MetadataRequestTopic
    with (
        contextlib.closing(Talk(guarded.port, "x", HOST)) as host,
        contextlib.closing(Talk(guarded.port, "x", GUEST)) as guest,
    ):
        ids = {}
        for name in ("known", "unknown"):
            deadline = time.monotonic() + 30
            while name not in ids:
                (made,) = host.ask("make", MetadataRequest(topics=[by_name(name=name)]), 12).topics
                if made.error_code is ErrorCode.NONE:
                    ids[name] = bytes(made.topic_id)
                assert time.monotonic() < deadline
        creation = CreateAclsRequest.AclCreation(resource_type=2, resource_name="known", **rule(AclOperation.DESCRIBE))
        host.ask("allow", CreateAclsRequest(creations=[creation]), 3)
        topics = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids.values()]
        answer = guest.ask("delete", DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
        told = {bytes(each.topic_id): (each.name, each.error_code) for each in answer.responses}
        assert told == {ids["known"]: ("known", TOPIC_REFUSED), ids["unknown"]: (None, TOPIC_REFUSED)}


def test_a_session_that_reads_is_refused_once_it_may_read_no_more(guarded: BrokerProcess) -> None:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)

    def fetched(guest: Talk, session_id: int, epoch: int) -> Any:
        topics = [] if epoch else [FetchRequest.FetchTopic(topic="read", partitions=[wanted])]
        request = blank(
            FetchRequest, replica_id=-1, max_wait_ms=1, session_id=session_id, session_epoch=epoch, topics=topics
        )
        return guest.ask("fetch", in_version(request, 12), 12)

    with (
        contextlib.closing(Talk(guarded.port, "x", HOST)) as host,
        contextlib.closing(Talk(guarded.port, "x", GUEST)) as guest,
    ):
        topic = MetadataRequest.MetadataRequestTopic(name="read")
        deadline = time.monotonic() + 30
        while host.ask("make", MetadataRequest(topics=[topic]), 8).topics[0].error_code is not ErrorCode.NONE:
            assert time.monotonic() < deadline
        creation = CreateAclsRequest.AclCreation(resource_type=2, resource_name="read", **rule(AclOperation.READ))
        host.ask("allow", CreateAclsRequest(creations=[creation]), 3)
        begun = fetched(guest, 0, 0)
        while begun.responses[0].partitions[0].error_code is not ErrorCode.NONE:
            assert time.monotonic() < deadline
            begun = fetched(guest, 0, 0)
        assert begun.session_id
        assert not fetched(guest, begun.session_id, 1).responses, "nothing is new"
        removal = blank(DeleteAclsRequest.DeleteAclsFilter, resource_name_filter="read", resource_type_filter=2)
        removal.pattern_type_filter = removal.operation = removal.permission_type = 1
        host.ask("forbid", DeleteAclsRequest(filters=[removal]), 3)
        for epoch in (2, 3):
            (refused,) = fetched(guest, begun.session_id, epoch).responses
            assert refused.partitions[0].error_code is TOPIC_REFUSED


def test_a_member_of_a_group_learns_of_no_topic_that_it_may_not_describe(guarded: BrokerProcess) -> None:
    deadline = time.monotonic() + 30

    def joined(talk: Talk, member: str, **subscription: Any) -> Any:
        request = blank(
            ConsumerGroupHeartbeatRequest,
            group_id="shared",
            member_id=member,
            rebalance_timeout_ms=10_000,
            topic_partitions=[],
            **{"subscribed_topic_names": None, "subscribed_topic_regex": None, **subscription},
        )
        while (answer := talk.ask("join", request, 1)).error_code in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            assert time.monotonic() < deadline
            talk.ask("find", FindCoordinatorRequest(key="shared"), 3)
        return answer

    def described(talk: Talk) -> Any:
        return talk.ask("describe", blank(ConsumerGroupDescribeRequest, group_ids=["shared"]), 1).groups[0]

    with (
        contextlib.closing(Talk(guarded.port, "x", HOST)) as host,
        contextlib.closing(Talk(guarded.port, "x", GUEST)) as guest,
    ):
        for name in ("seen-by-all", "hidden-from-guests"):
            topic = MetadataRequest.MetadataRequestTopic(name=name)
            while host.ask("make", MetadataRequest(topics=[topic]), 8).topics[0].error_code is not ErrorCode.NONE:
                assert time.monotonic() < deadline
        group, seen = (
            CreateAclsRequest.AclCreation(resource_type=kind, resource_name=name, **rule(AclOperation.READ))
            for kind, name in ((3, "shared"), (2, "seen-by-all"))
        )
        host.ask("allow", CreateAclsRequest(creations=[group, seen]), 3)
        refused = joined(guest, "a", subscribed_topic_names=["seen-by-all", "hidden-from-guests"])
        assert (refused.error_code, refused.assignment) == (TOPIC_REFUSED, None)
        got = joined(guest, "a", subscribed_topic_regex="(seen|hidden)-.*")
        assert got.error_code is ErrorCode.NONE
        assert len(got.assignment.topic_partitions) == 1
        (member,) = described(guest).members
        assert [each.topic_name for each in member.assignment.topic_partitions] == ["seen-by-all"]
        assert joined(host, "b", subscribed_topic_regex="hidden-.*").error_code is ErrorCode.NONE
        told = described(guest)
        assert (told.error_code, told.members) == (TOPIC_REFUSED, [])
        assert len(described(host).members) == 2


def test_who_may_copy_as_a_follower_may_read_what_it_mends_a_segment_with(guarded: BrokerProcess) -> None:
    """Brokers that have CLUSTER_ACTION and no READ mend what is damaged; others who say that they mend gain nothing."""
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic="mended", partitions=[wanted])]

    def fetched(guest: Talk, replica_id: int) -> ErrorCode:
        request = blank(FetchRequest, replica_id=replica_id, max_wait_ms=1, session_epoch=-1, topics=topics)
        code: ErrorCode = guest.ask("fetch", in_version(request, 12), 12).responses[0].partitions[0].error_code
        return code

    with (
        contextlib.closing(Talk(guarded.port, "x", HOST)) as host,
        contextlib.closing(Talk(guarded.port, "x", GUEST)) as guest,
    ):
        topic = MetadataRequest.MetadataRequestTopic(name="mended")
        deadline = time.monotonic() + 30
        while host.ask("make", MetadataRequest(topics=[topic]), 8).topics[0].error_code is not ErrorCode.NONE:
            assert time.monotonic() < deadline
        assert [fetched(guest, replica_id) for replica_id in (MENDING, -1)] == [TOPIC_REFUSED] * 2
        creation = CreateAclsRequest.AclCreation(
            resource_type=4, resource_name="kafka-cluster", **rule(AclOperation.CLUSTER_ACTION)
        )
        host.ask("allow", CreateAclsRequest(creations=[creation]), 3)
        try:
            while fetched(guest, MENDING) is not ErrorCode.NONE:
                assert time.monotonic() < deadline
            assert fetched(guest, -1) is TOPIC_REFUSED
        finally:
            removal = blank(DeleteAclsRequest.DeleteAclsFilter, principal_filter=ANONYMOUS, host_filter=GUEST)
            removal.resource_type_filter, removal.pattern_type_filter = 4, 1
            removal.operation, removal.permission_type = AclOperation.CLUSTER_ACTION, 1
            host.ask("forbid", DeleteAclsRequest(filters=[removal]), 3)
            while fetched(guest, MENDING) is not TOPIC_REFUSED:
                assert time.monotonic() < deadline


def test_what_was_allowed_is_a_line_in_the_audit_log_once_its_level_says_so(guarded: BrokerProcess) -> None:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    wanted = [ListOffsetsRequest.ListOffsetsTopic(name="audited", partitions=[partition])]
    line = "Topic:LITERAL:audited for request = ListOffsets"

    def set_level(host: Talk, level: str) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=8,
            resource_name=str(guarded.broker_id),
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name="kafka.authorizer.logger", config_operation=0, value=level
                )
            ],
        )
        (answer,) = host.ask(
            "level", IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        ).responses
        assert answer.error_code is ErrorCode.NONE

    with contextlib.closing(Talk(guarded.port, "x", HOST)) as host:
        for _ in range(2):
            host.ask("quiet", ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
        assert line not in guarded.log_file.read_text()
        set_level(host, "DEBUG")
        try:
            for count in (1, 2):
                host.ask("told", ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
                assert guarded.log_file.read_text().count(line) == count
        finally:
            set_level(host, "INFO")
