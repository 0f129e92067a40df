"""What monitors ask."""

from kbroker.dev.stand_in.four_letter_words import WORDS, reply_to
from kbroker.dev.stand_in.operations import Create, Mode
from kbroker.dev.stand_in.tree import Client, Tree


def test_every_word_is_answered_with_what_there_is() -> None:
    tree = Tree()
    tree.open_session(1, 6000, b"", now_ms=0)
    tree.write(Create("/a", mode=Mode.EPHEMERAL), Client(1), now_ms=0)
    answers = {word: reply_to(word, tree, connections=3) for word in WORDS}
    assert answers[b"ruok"] == "imok"
    assert answers[b"srvr"].startswith("Zookeeper version: ")
    assert "Zxid: 0x2\n" in answers[b"stat"]
    assert "Node count: 6\n" in answers[b"srvr"]
    values = dict(line.split("\t") for line in answers[b"mntr"].splitlines())
    assert values["zk_ephemerals_count"] == "1"
    assert values["zk_num_alive_connections"] == "3"
    assert all("stand-in" in answer for word, answer in answers.items() if word != b"ruok")
