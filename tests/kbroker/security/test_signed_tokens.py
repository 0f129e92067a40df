"""Tokens signed by an identity provider."""

import base64
import hmac
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from kbroker.security.oauthbearer import TokenRefused, ValidToken
from kbroker.security.signed_tokens import LONGEST_KEY_ID, SignedValidator, UnknownKey, read_keys
from kbroker.security.tokens import LONGEST_HEADER, unsecured_token

NOW_MS = 1_000_000
KEY = ECKey.generate_key("P-256", {"kid": "k1"})
OTHER = ECKey.generate_key("P-256", {"kid": "k2"})
KEYS = read_keys({"keys": [KEY.as_dict(private=False), {"kty": "oct", "k": "AAAA"}]})


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": " alice ", "exp": 1_100, "iat": 900, **more}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(given: dict[str, Any], key: Any = KEY, algorithm: str = "ES256", **header: str) -> str:
    found = {name: value for name, value in given.items() if value is not None}
    return jwt.encode({"alg": algorithm, **({"kid": key.kid} if key.kid else {}), **header}, found, key)


def test_a_signed_token_stands_for_its_subject() -> None:
    assert SignedValidator().validate(signed(claims()), KEYS, NOW_MS) == ValidToken("alice", 1_100_000)


def test_clocks_may_differ_by_half_a_minute() -> None:
    assert SignedValidator().validate(signed(claims(exp=971, nbf=1_030)), KEYS, NOW_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 970},
        {"exp": None},
        {"iat": None},
        {"iat": 1_101},
        {"nbf": 1_031},
        {"sub": " "},
        {"sub": None},
        {"aud": "kafka"},
        {"aud": ["kafka"]},
        {"scope": 7},
        {"scope": ["a", "a"]},
        {"scope": ["a", " "]},
    ],
)
def test_a_token_that_says_what_it_must_not_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        SignedValidator().validate(signed(claims(**changed)), KEYS, NOW_MS)


def test_audience_and_issuer_have_to_be_the_expected_ones() -> None:
    validator = SignedValidator(expected_audience=("kafka", "other"), expected_issuer="https://idp")
    assert validator.validate(signed(claims(aud=["x", "kafka"], iss="https://idp")), KEYS, NOW_MS)
    for wrong in ({"aud": "x"}, {"aud": None}, {"iss": "https://evil"}, {"iss": None}):
        with pytest.raises(TokenRefused):
            validator.validate(signed(claims(**{"aud": "kafka", "iss": "https://idp", **wrong})), KEYS, NOW_MS)


def test_nobody_gets_in_without_a_signature_or_with_one_of_another_kind() -> None:
    header, body, signature = signed(claims()).split(".")
    hs256 = base64url(b'{"alg":"HS256","kid":"k1"}')
    as_secret = f"{hs256}.{body}"
    mac = hmac.digest(KEY.as_pem(private=False), as_secret.encode(), "sha256")
    forged = (
        unsecured_token(claims()),
        f"{as_secret}.{base64url(mac)}",  # the public key as if it were a secret
        f"{header}.{body}.",
        f"{header}.{body}.{signature[:-4]}AAAA",
        f"{header}.{signed(claims(sub='root')).split('.')[1]}.{signature}",
        signed(claims(), OTHER, kid="k1"),
    )
    for token in forged:
        with pytest.raises(TokenRefused):
            SignedValidator().validate(token, KEYS, NOW_MS)


def test_a_key_that_is_not_published_is_named() -> None:
    with pytest.raises(UnknownKey) as caught:
        SignedValidator().validate(signed(claims(), OTHER), KEYS, NOW_MS)
    assert caught.value.key_id == "k2"


def test_of_a_long_id_of_a_key_only_the_beginning_is_kept() -> None:
    """It is remembered for a while, and whoever sends it has not logged in."""
    with pytest.raises(UnknownKey) as caught:
        SignedValidator().validate(signed(claims(), OTHER, kid="k" * 20_000), KEYS, NOW_MS)
    assert caught.value.key_id == "k" * LONGEST_KEY_ID
    assert len(str(caught.value)) < 300


def test_nothing_but_a_short_header_is_read_of_a_token_before_its_signature_is_right() -> None:
    """To read half a megabyte of claims takes the event loop 25 ms, and whoever sends them has not logged in."""
    header, _, signature = signed(claims()).split(".")
    with pytest.raises(TokenRefused, match="signature is wrong"):
        SignedValidator().validate(f"{header}.no-claims-at-all.{signature}", KEYS, NOW_MS)
    with pytest.raises(TokenRefused, match=f"header has .* bytes: {LONGEST_HEADER} are allowed"):
        SignedValidator().validate(signed(claims(), x5t="k" * LONGEST_HEADER), KEYS, NOW_MS)


def test_a_token_without_a_key_id_is_tried_with_all_keys() -> None:
    key = ECKey.import_key(KEY.as_dict(private=True) | {"kid": ""})
    assert SignedValidator().validate(signed(claims(), key), KEYS, NOW_MS)


@pytest.mark.parametrize("document", [None, {}, {"keys": 7}, {"keys": []}, {"keys": [7]}, {"keys": [{"kty": "EC"}]}])
def test_what_is_no_jwks_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        read_keys(document)


def test_a_key_of_a_curve_that_nobody_knows_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    strange = {"kty": "EC", "kid": "k3", "crv": "BP-256", "x": "AQ", "y": "AQ"}
    keys = read_keys({"keys": [strange, {"kty": "RSA", "e": "AQAB"}, KEY.as_dict(private=False)]})
    assert [key.kid for key in keys] == ["k1"]
    assert "a key of the JWKS cannot be read, and is left out: kid 'k3': KeyError" in caplog.text


@pytest.mark.parametrize("is_first", [True, False])
def test_a_garbled_key_does_not_bring_back_what_another_of_its_name_replaces(
    is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    garbled = {**KEY.as_dict(private=False), "x": "A"}
    new = ECKey.generate_key("P-256", {"kid": "k1"}).as_dict(private=False)
    keys = read_keys({"keys": [garbled, new] if is_first else [new, garbled]}, KEYS)
    assert [key.as_dict(private=False)["x"] for key in keys] == [new["x"]]
    assert "cannot be read, and is left out: kid 'k1'" in caplog.text


def test_a_key_that_is_garbled_twice_is_kept_once(caplog: pytest.LogCaptureFixture) -> None:
    garbled = {**KEY.as_dict(private=False), "x": "A"}
    other = OTHER.as_dict(private=False)
    assert [key.kid for key in read_keys({"keys": [garbled, other, garbled]}, KEYS)] == ["k2", "k1"]
    assert "cannot be read, and is kept as it was before: kid 'k1'" in caplog.text
