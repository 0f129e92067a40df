"""ACLs of the schemes world, auth and digest."""

import pytest
from kazoo.security import make_digest_acl_credential

from kbroker.dev.stand_in.access import authenticated, check, resolved, without_secrets
from kbroker.dev.stand_in.operations import ADMIN, ALL, OPEN_ACL, READ, WRITE, Acl, Code, Identity, Refused

ANN = Identity("digest", make_digest_acl_credential("ann", "secret"))
BOB = Identity("digest", make_digest_acl_credential("bob", "secret"))


def test_credentials_of_a_digest_are_what_clients_put_into_acls() -> None:
    assert authenticated("digest", b"ann:secret") == ANN
    with pytest.raises(Refused) as refused:
        authenticated("sasl", b"")
    assert refused.value.code is Code.AUTH_FAILED


def test_who_is_named_may_do_what_is_named() -> None:
    acl = (Acl(READ, "world", "anyone"), Acl(READ | WRITE, *ANN))
    check(acl, READ, ())
    check(acl, WRITE, (BOB, ANN))
    check(acl, WRITE | ADMIN, (ANN,))
    for permission, identities in ((WRITE, ()), (WRITE, (BOB,)), (ADMIN, (ANN,))):
        with pytest.raises(Refused) as refused:
            check(acl, permission, identities)
        assert refused.value.code is Code.NO_AUTH


def test_auth_stands_for_all_that_the_client_has_proved() -> None:
    assert resolved((Acl(ALL, "auth", ""), OPEN_ACL[0]), (ANN, BOB), "/a") == (
        Acl(ALL, *ANN),
        Acl(ALL, *BOB),
        OPEN_ACL[0],
    )
    assert resolved((*OPEN_ACL, *OPEN_ACL), (), "/a") == OPEN_ACL


@pytest.mark.parametrize(
    "acl",
    [
        (),
        (Acl(ALL, "auth", ""),),
        (Acl(ALL, "world", "ann"),),
        (Acl(ALL, "digest", "ann"),),
        (Acl(ALL, "digest", "a:b:c"),),
        (Acl(ALL, "sasl", "ann"),),
    ],
)
def test_an_acl_that_means_nobody_is_invalid(acl: tuple[Acl, ...]) -> None:
    with pytest.raises(Refused) as refused:
        resolved(acl, (), "/a")
    assert refused.value.code is Code.INVALID_ACL


def test_those_who_may_not_administer_see_no_digests() -> None:
    assert without_secrets((Acl(READ, *ANN), OPEN_ACL[0])) == (Acl(READ, "digest", "ann:x"), OPEN_ACL[0])
