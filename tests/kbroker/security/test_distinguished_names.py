import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kbroker.security.distinguished_names import PrincipalRules, subject_of

JAVA = [
    ("3031310b3009060355040613024445310a3008060355040a130163310a3008060355040b130162310a30080603550403130161", "CN=a,OU=b,O=c,C=DE"),  # noqa: E501
    ("3029310a30080603550403130161311b301906092a864886f70d010901160c6d6540782e6578616d706c65", "1.2.840.113549.1.9.1=#160c6d6540782e6578616d706c65,CN=a"),  # noqa: E501
    ("3022310a3008060355040a1301633114300806035504031301613008060355040b130162", "CN=a+OU=b,O=c"),
    ("3056310b30090603550408130262773111300f060a0992268993f22c64010113017531173015060a0992268993f22c64011916076578616d706c65310a30080603550409130173310f300d06035504030c06c38472676572", "CN=Ärger,STREET=s,DC=example,UID=u,ST=bw"),  # noqa: E501
    ("301c310c300a060355040a0c03632364310c300a06035504031303613d62", r"CN=a\=b,O=c\#d"),
    ("30233111300f060355040a0c08783c793e3b7a2b77310e300c06035504030c05236c656164", r"CN=\#lead,O=x\<y\>\;z\+w"),
    ("302631133011060355040a0c0a6261636b5c736c617368310f300d06035504030c067122756f7465", r"CN=q\"uote,O=back\\slash"),
    ("301e310b3009060355040613024445310f300d06035504031306636f6d2c6d61", r"CN=com\,ma,C=DE"),
    ("3033310a30080603550404130173310a3008060355042a130167310d300b060355040c1304626f7373310a30080603550405130135", "2.5.4.5=#130135,2.5.4.12=#1304626f7373,2.5.4.42=#130167,2.5.4.4=#130173"),  # noqa: E501
    ("3029310b3009060355040613024445310a3008060355040a0c0158310e300c06035504030c052020612020", r"CN=\ \ a\ \ ,O=X,C=DE"),  # noqa: E501
    ("300d310b300906035504030c022020", r"CN=\ \ "),
    ("300e310c300a06035504030c030d610d", "CN=\\\ra\\\r"),
    ("300e310c300a06035504030c03610062", r"CN=a\00b"),
    ("300d310b3009060355040312023132", "CN=#12023132"),
    ("300e310c300a06035504031a03766973", "CN=#1a03766973"),
    ("30173115301306035504031c0c000000750000006e00000069", "CN=#1c0c000000750000006e00000069"),
    ("3011310f300d06035504031e060062006d0070", r"CN=\00b\00m\00p"),
    ("300e310c300a06035504031303615f62", "CN=a_b"),
    ("300e310c300a06035504031b0367656e", "CN=gen"),
    ("300d310b300906035504031402e461", "CN=\ufffda"),
    ("30333110300e060355040713076d696420646c65310f300d060355040a1306747261696c20310e300c06035504031305206c656164", r"CN=\ lead,O=trail\ ,L=mid dle"),  # noqa: E501
]  # fmt: skip
"""Encoded names, and what X500Principal.getName() says of them."""


def certificate_of(subject: bytes) -> bytes:
    """A certificate whose subject is these bytes: put in the place of another of the same length."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    place = x509.Name([x509.NameAttribute(x509.ObjectIdentifier("1.2.3"), "x" * (len(subject) - 12))])
    made = (
        x509.CertificateBuilder()
        .subject_name(place)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )
    encoded = place.public_bytes()
    assert len(encoded) == len(subject)
    return made.replace(encoded, subject)


@pytest.mark.parametrize(("encoded", "name"), JAVA)
def test_a_subject_is_written_as_java_writes_it(encoded: str, name: str) -> None:
    assert subject_of(certificate_of(bytes.fromhex(encoded))) == name


def test_what_is_no_certificate_is_told() -> None:
    whole = certificate_of(bytes.fromhex(JAVA[0][0]))
    for spoiled in (
        b"",
        whole[:-1],
        whole + b"0",
        whole[:2] + b"\xff\xff" + whole[4:],
        b"0\x80" + whole[2:],
        b"0\x030\x01",
    ):
        with pytest.raises(ValueError, match="cannot be read"):
            subject_of(spoiled)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=([^,]+),OU=Apps,.*$/$1/L,DEFAULT", "CN=Pay,OU=Apps,O=X", "pay"),
        ("RULE:^CN=([^,]+),OU=Apps,.*$/$1/L,DEFAULT", "CN=Pay,OU=Else,O=X", "CN=Pay,OU=Else,O=X"),
        (" RULE:^CN=(.*?),.*$/$1/U , DEFAULT ,", "CN=pay,O=X", "PAY"),
        ("RULE:CN=(\\w+)/user-$1/", "CN=pay", "user-pay"),
        ("RULE:CN=(\\w+)/$1/", "CN=pay,O=X", None),
        ("RULE:CN=a\\/b/slash\\/$0/", "CN=a/b", "slash/CN=a/b"),
        ("RULE:CN=(.*)/$1$7/", "CN=pay", "pay$7"),
        ("RULE:CN=a,b//,DEFAULT", "CN=a,b", ""),
        ("", "CN=a", None),
        (",RULE:CN=(.*)/$1/,,", "CN=pay", "pay"),
        (r"RULE:^CN=(\w+),O=x$/$1/L,DEFAULT", "CN=\u212aafka,O=x", "CN=\u212aafka,O=x"),
        (r"RULE:CN=(?i:kafka)/is-kafka/,DEFAULT", "CN=\u212aafka", "CN=\u212aafka"),
        (r"RULE:CN=[]a\[\\&]+/brackets/", r"CN=[\]&", "brackets"),
    ],
)
def test_the_first_rule_that_fits_the_whole_name_says_the_principal(
    rules: str, name: str, principal: str | None
) -> None:
    assert PrincipalRules(rules).apply(name) == principal


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:a/b/LU", "RULE:a/b/X", "RULE:(/b/", "DEFAULT DEFAULT", "DEFAULTS"]
)
def test_what_is_no_rule_is_told(rules: str) -> None:
    with pytest.raises(ValueError, match=r"is no pattern|is neither DEFAULT nor RULE"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    "pattern", ["CN=[a-z&&[^b]]+", "CN=[a&&b]", "CN=[ab[cd]]", "CN=[[:alpha:]]", "CN=[^a[b]", r"\\[a\]&&b]", "[&&a]"]
)
def test_a_pattern_that_says_something_else_in_java_is_told(pattern: str) -> None:
    with pytest.raises(ValueError, match="means something else in Java"):
        PrincipalRules(f"RULE:{pattern}/x/")


def test_a_flag_that_cannot_be_had_is_told() -> None:
    with pytest.raises(ValueError, match=r"is no pattern: ASCII and UNICODE"):
        PrincipalRules("RULE:(?u)CN/x/")
