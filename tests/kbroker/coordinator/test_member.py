from kbroker.coordinator.member import Member


def member(*protocols: tuple[str, bytes], instance: str | None = None) -> Member:
    return Member("m-1", instance, "m", "/host", 10_000, 60_000, protocols)


def test_a_member_votes_for_its_first_protocol_that_others_have_too() -> None:
    assert member(("a", b""), ("b", b""), ("c", b"")).vote({"c", "b"}) == "b"


def test_metadata_of_a_protocol_it_does_not_have_is_empty() -> None:
    known = member(("a", b"1"))
    assert (known.metadata("a"), known.metadata("b"), known.metadata(None)) == (b"1", b"", b"")


def test_an_instance_id_makes_a_member_static() -> None:
    assert member(instance="one").is_static
    assert not member().is_static
