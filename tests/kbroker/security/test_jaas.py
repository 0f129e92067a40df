"""Java's notation for log-in modules."""

import pytest

from kbroker.security.jaas import SCRAM_MODULE, JaasError, parse_jaas, parse_jaas_file, shown


def test_an_entry_has_a_class_and_options() -> None:
    module = parse_jaas(f'{SCRAM_MODULE} required username="alice" password="a\\"b c;={{}}" tokenauth=true;')
    assert module.name == SCRAM_MODULE
    assert module.options == {"username": "alice", "password": 'a"b c;={}', "tokenauth": "true"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (r'user_a="p\101q"', {"user_a": "pAq"}),
        (r'user_a="\3777\4777\78\0"', {"user_a": "\xff7'77\x078\0"}),
        (r'user_a="\a\b\f\n\r\t\v"', {"user_a": "\a\b\f\n\r\t\v"}),
        (r'user_a="x\8y\q\u0041"', {"user_a": "x8yqu0041"}),
        ('user_ü="x" user_a=ümlaut\xa0漢', {"user_ü": "x", "user_a": "ümlaut\xa0漢"}),
        ('user_a\x1f=\x01x "1a"="y"', {"user_a": "x", "1a": "y"}),
    ],
)
def test_signs_and_escapes_are_those_of_javas_tokenizer(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(f"a.B required {text};").options == options


def test_options_may_stand_on_lines_of_their_own_with_comments() -> None:
    text = "a.B REQUIRED // first\n /* user_x=\"no\" */ user_alice='it''s' \n;"
    with pytest.raises(JaasError):
        parse_jaas(text)  # two quoted words in a row
    assert parse_jaas("a.B Sufficient // first\n /* user_x='no' */ user_alice='x'\n;").options == {"user_alice": "x"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the text ends"),
        ("a.B required username='secret'", "the text ends"),
        ("a.B username='secret';", "control flag"),
        ("a.B required password=1secret;", "has to be in quotes"),
        ("a.B required 1secret='x';", "line 1: expected an option"),
        ("a.B required user_a\x85='secret';", "only stands in quotes"),
        ("a.B required password=;", "has to be in quotes"),
        ("a.B required password='secret;", "does not end"),
        ("a.B required password=se#cret;", "only stands in quotes"),
        ("a.B required; a.C required;", "more than one"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "not allowed"),
        ("a.B required /secret;", "outside of quotes"),
        ("a.B required /* secret", "comment"),
    ],
)
def test_what_is_wrong_is_said_without_the_values(text: str, said: str) -> None:
    with pytest.raises(JaasError, match=said) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)


def test_a_file_has_entries_by_context() -> None:
    contexts = parse_jaas_file(
        "KafkaServer { a.B required x=y; a.C optional; };\ninternal.KafkaServer { a.D required; };"
    )
    assert [module.name for module in contexts["KafkaServer"]] == ["a.B", "a.C"]
    assert [module.name for module in contexts["internal.KafkaServer"]] == ["a.D"]


def test_options_never_show_in_a_representation() -> None:
    assert "hunter2" not in repr(parse_jaas("a.B required password=hunter2;"))


@pytest.mark.parametrize("text", ["hunter2", 'hunter2 user_eve="x";', "hunter2.a required;", '"hunter2" optional'])
def test_a_password_in_the_wrong_place_is_not_told(text: str) -> None:
    try:
        said = shown(parse_jaas(text).name)
    except JaasError as error:
        said = str(error)
    assert "hunter2" not in said
