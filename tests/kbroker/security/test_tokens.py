"""Tokens without a signature."""

from typing import Any

import pytest

from kbroker.security.oauthbearer import TokenRefused, ValidToken
from kbroker.security.tokens import UnsecuredValidator, unsecured_claims, unsecured_token

NOW_MS = 1_000_000


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "exp": 1_100, "iat": 900, **more}


def test_a_token_stands_for_its_subject_until_it_expires() -> None:
    assert UnsecuredValidator().validate(unsecured_token(claims()), NOW_MS) == ValidToken("alice", 1_100_000)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        "...",
        unsecured_token(claims()) + "AA",
        unsecured_token(claims(sub=" ")),
        unsecured_token(claims(sub=7)),
        unsecured_token(claims(exp=1_000)),
        unsecured_token(claims(exp=None)),
        unsecured_token(claims(exp="9999")),
        unsecured_token(claims(exp=float("inf"))),
        unsecured_token(claims(exp=float("nan"))),
        unsecured_token(claims(exp=10**400)),
        unsecured_token(claims(iat=-(10**400))),
        unsecured_token(claims(exp=True)),
        unsecured_token(claims(iat=1_001)),
        unsecured_token(claims(iat=1_100)),
        "W10." + unsecured_token(claims()).split(".")[1] + ".",
        "eyJhbGciOiJIUzI1NiJ9." + unsecured_token(claims()).split(".")[1] + ".",
    ],
)
def test_a_token_that_does_not_hold_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused) as caught:
        UnsecuredValidator().validate(token, NOW_MS)
    assert caught.value.answer == '{"status":"invalid_token"}'


def test_clocks_may_differ_by_what_is_allowed() -> None:
    validator = UnsecuredValidator.of({"unsecuredValidatorAllowableClockSkewMs": "2000"})
    assert validator.validate(unsecured_token(claims(exp=999, iat=998)), NOW_MS).principal == "alice"
    with pytest.raises(ValueError, match="milliseconds"):
        UnsecuredValidator.of({"unsecuredValidatorAllowableClockSkewMs": "long"})


def test_the_required_scope_has_to_be_there() -> None:
    validator = UnsecuredValidator.of({"unsecuredValidatorRequiredScope": "read write"})
    assert validator.validate(unsecured_token(claims(scope=["write", "read"])), NOW_MS)
    with pytest.raises(TokenRefused) as caught:
        validator.validate(unsecured_token(claims(scope="read write")), NOW_MS)  # one item, as in Kafka
    assert caught.value.missing_scope == ("read", "write")


def test_another_claim_may_name_the_principal() -> None:
    validator = UnsecuredValidator.of({"unsecuredValidatorPrincipalClaimName": "user"})
    assert validator.validate(unsecured_token(claims(user="bob")), NOW_MS).principal == "bob"


def test_log_in_options_describe_a_token() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "bob",
        "unsecuredLoginNumberClaim_level": "7",
        "unsecuredLoginListClaim_scope": ",read,write",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    made = unsecured_claims(options, NOW_MS)
    assert made == {"iat": 1000.0, "exp": 1060.0, "sub": "bob", "level": 7.0, "scope": ["read", "write"]}
    assert UnsecuredValidator().validate(unsecured_token(made), NOW_MS).principal == "bob"
    assert unsecured_claims({}, NOW_MS) is None
    with pytest.raises(ValueError, match="unsecuredLoginStringClaim_sub"):
        unsecured_claims({"unsecuredLoginLifetimeSeconds": "60"}, NOW_MS)
