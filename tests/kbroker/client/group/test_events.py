from kbroker.client.group.classic_member import ClassicMember
from kbroker.client.group.consumer_member import ConsumerMember
from kbroker.client.group.events import Identity, Member, MemberSettings


def test_both_kinds_of_members_understand_the_same_events() -> None:
    events = {name for name in vars(Member) if not name.startswith("_")}
    for kind in (ClassicMember, ConsumerMember):
        assert not [name for name in events if not callable(getattr(kind, name)) and not hasattr(kind, name)]


def test_nobody_has_no_generation() -> None:
    assert Identity() == Identity(-1, "")
    assert MemberSettings("g").instance_id is None
