"""What all mechanisms share."""

from kbroker.security.exchange import LONGEST_SHOWN, shown


def test_a_name_from_a_peer_is_shown_on_one_short_line() -> None:
    assert shown("alice") == "'alice'"
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("a" * 100_000)) < LONGEST_SHOWN + 5
