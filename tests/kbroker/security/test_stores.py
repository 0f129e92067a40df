"""Stores of all forms, as Kafka's rules have them, and what is wrong with those that cannot be used."""

import shutil
import subprocess
from pathlib import Path

import jks
import pytest
from cryptography.hazmat.primitives import serialization

from kbroker.security.stores import KeyStore, StoreError, TrustStore
from tests.fixtures.certificates import PASSWORD, Authority, Identity, key_pem
from tests.kbroker.security.store_files import STORE_PASSWORD, der, jks_files, pkcs12_file


def test_a_pem_file_holds_key_and_certificate(broker_identity: Identity) -> None:
    found = KeyStore(type="pem", location=str(broker_identity.file)).load()
    assert found is not None
    assert found.certificates == (der(broker_identity.certificate),)
    assert found.key.split() == key_pem(broker_identity.key).decode().split()


def test_pem_texts_may_lose_their_line_ends_and_have_other_text_around(
    broker_identity: Identity, authority: Authority
) -> None:
    key = "Bag Attributes: none " + broker_identity.encrypted_key_file.read_text().replace("\n", " ")
    chain = f"subject=me {broker_identity.certificate_file.read_text()} {authority.file.read_text()}".replace("\n", " ")
    found = KeyStore(type="PEM", key=key, certificate_chain=chain, key_password=PASSWORD).load()
    assert found is not None
    assert found.certificates == (der(broker_identity.certificate), der(authority.certificate))
    assert found.password == PASSWORD
    assert serialization.load_pem_private_key(found.pem, PASSWORD.encode())


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_store_is_read_by_what_it_is_whatever_it_is_called(
    kind: str, broker_identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    java, trusted = jks_files(tmp_path, broker_identity, authority)
    newer = pkcs12_file(tmp_path, broker_identity, authority)
    chain = (der(broker_identity.certificate), der(authority.certificate))
    for file, key_password in ((java, PASSWORD), (newer, None)):
        store = KeyStore(type=kind, location=str(file), password=STORE_PASSWORD, key_password=key_password)
        found = store.load()
        assert found is not None
        assert found.certificates == chain
        assert found.key.split() == key_pem(broker_identity.key).decode().split()
    for password in (STORE_PASSWORD, None):
        assert TrustStore(kind, str(trusted), password).load() == (der(authority.certificate),)


def test_of_a_key_store_its_own_certificate_is_trusted_and_not_who_vouches_for_it(
    broker_identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    java, _ = jks_files(tmp_path, broker_identity, authority)
    for file in (java, pkcs12_file(tmp_path, broker_identity, authority)):
        assert TrustStore(location=str(file), password=STORE_PASSWORD).load() == (der(broker_identity.certificate),)


def test_beside_a_key_those_are_trusted_that_are_entries_of_their_own(
    broker_identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    """As Java's keytool names them: entries by their alias, what belongs to the chain of a key by its subject."""
    other = Authority(tmp_path / "other", "others")
    own, chain = der(broker_identity.certificate), (authority.certificate, "CN=authority of tests")
    unnamed, second_chain = (other.certificate, None), (other.certificate, "CN=authority of others")
    also_trusted, named_by_openssl = (other.certificate, "others"), (authority.certificate, "our authority")
    expected = {
        (chain, also_trusted): {own, der(other.certificate)},
        (named_by_openssl, chain): {own, der(authority.certificate)},
        (named_by_openssl,): {own},
        (chain, unnamed): {own},
        (chain, second_chain): {own},
    }
    for others, trusted in expected.items():
        file = pkcs12_file(tmp_path, broker_identity, *others)
        found = TrustStore(location=str(file), password=STORE_PASSWORD).load()
        assert found is not None
        assert set(found) == trusted, others


@pytest.mark.slow
def test_a_store_made_by_javas_keytool_is_read(authority: Authority, tmp_path: Path) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        return
    file = tmp_path / "trust.p12"
    command = f"{keytool} -importcert -noprompt -alias ca -file {authority.file} -keystore {file} -storepass secret12"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    assert TrustStore("JKS", str(file), "secret12").load() == (der(authority.certificate),)


def test_without_a_store_there_is_nothing() -> None:
    assert KeyStore().load() is None
    assert TrustStore().load() is None
    assert not KeyStore().is_given
    assert not TrustStore().is_given


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (KeyStore(type="BCFKS"), "ssl.keystore.type=BCFKS: PEM, PKCS12, JKS can be read"),
        (KeyStore(location="/nowhere", type="PEM"), "ssl.keystore.location=/nowhere cannot be read: No such file"),
        (KeyStore(location="/nowhere"), "needs ssl.keystore.password"),
        (KeyStore(password="p"), "ssl.keystore.location is not"),
        (KeyStore(location="x", type="PEM", password="p"), "ssl.keystore.password cannot be set for PEM"),
        (KeyStore(key="k", certificate_chain="c"), "needs ssl.keystore.type=PEM, not JKS"),
        (KeyStore(type="PEM", key="k", certificate_chain="c", location="x"), "cannot be set, too"),
        (KeyStore(type="PEM", certificate_chain="c"), "one is missing"),
        (KeyStore(type="PEM", key="k", certificate_chain="c"), "must hold one private key in PEM form, not 0"),
        (TrustStore(type="PEM", location="x", password="p"), "cannot be set for PEM"),
        (TrustStore(certificates="c"), "needs ssl.truststore.type=PEM"),
        (TrustStore(type="PEM", certificates="c", location="x"), "cannot be set, too"),
        (TrustStore(type="PEM", certificates="no text"), "holds no certificate in PEM form"),
        (TrustStore(password="p"), "ssl.truststore.location is not"),
    ],
)
def test_what_does_not_go_together_is_told(store: KeyStore | TrustStore, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        store.load()


def test_the_keys_password_and_its_form_must_agree(broker_identity: Identity) -> None:
    chain = broker_identity.certificate_file.read_text()
    plain, encrypted = broker_identity.key_file.read_text(), broker_identity.encrypted_key_file.read_text()
    with pytest.raises(StoreError, match=r"ssl\.key\.password is set, but the key is not encrypted"):
        KeyStore(type="PEM", key=plain, certificate_chain=chain, key_password="p").load()
    with pytest.raises(StoreError, match=r"ssl\.key\.password is needed"):
        KeyStore(type="PEM", key=encrypted, certificate_chain=chain).load()
    older = plain.replace("PRIVATE KEY", "EC PRIVATE KEY")
    with pytest.raises(StoreError, match=r"PKCS#8 form"):
        KeyStore(type="PEM", key=older, certificate_chain=chain).load()


def test_a_wrong_password_or_garbage_is_told_without_the_password(
    broker_identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    java, trusted = jks_files(tmp_path, broker_identity, authority)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\xfe\xed\xfe\xed garbage")
    for file in (java, pkcs12_file(tmp_path, broker_identity, authority), garbage):
        with pytest.raises(StoreError, match=f"{file} cannot be read, is its password right") as raised:
            KeyStore(location=str(file), password="sesame").load()
        assert "sesame" not in str(raised.value)
    with pytest.raises(StoreError, match="holds no private key"):
        KeyStore(location=str(trusted), password=STORE_PASSWORD).load()
    empty = tmp_path / "empty.jks"
    jks.KeyStore.new("jks", []).save(str(empty), STORE_PASSWORD)
    with pytest.raises(StoreError, match="holds no certificate"):
        TrustStore(location=str(empty), password=STORE_PASSWORD).load()


def test_secrets_are_not_shown() -> None:
    store = KeyStore(password="sesame", key_password="sesame", key="sesame", certificate_chain="sesame")
    assert "sesame" not in repr(store) + repr(TrustStore(password="sesame", certificates="sesame"))
