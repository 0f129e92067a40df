"""Passwords as Kafka's brokers encrypt them in dynamic configurations."""

import re

import pytest

from kbroker.security.password_encoder import GCM, PasswordEncoder, PasswordError

SECRET, PASSWORD = "the-sécret", "of-the-störe"
BY_KAFKA = (
    "initializationVector:T9yGj4HCPTZhnP1/Js254A==,"
    "keyLength:128,"
    "salt:T1A0RZ11W0i8/2s1UZDAhcvLQXD4ObvH45Q0ZAthSMlkcdNAAn2JFVnH/Gd5++CV4tMeY0isg81Oy/47d3WOAEumgERfUIYGSvVrNFA"
    "e1Nxm8eJOXntpqLuS3MAAixegbC2BfJk781PmCBciSq6D1aLdxe0PjypyXgvvXzTNs/U4qJ0KpJ2Qbw3ZsUJeUfRGMtVqCbguVGJxmV7EXmT"
    "VAw+ak3gk25kjWEX8GhH7OSDqOd7J+AgtkYQn++1ns6LLqskxpY7yYeixzJ1gRdCbDXAlhoNE+ONLQBIMYJW3NlSSjKsQvfp4zTyxxg5/HK1"
    "toUnURLeY5iC3MYZZ9tDA8w==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,"
    "iterations:4096,"
    "passwordLength:12,"
    "encryptedPassword:yDbeUQftmK3eLycKq5xyhA=="
)
"""Made by Kafka 3.9.2 with its defaults."""
BY_KAFKA_GCM = (
    "initializationVector:dJQjQ6gzNlAxa0Nq,"
    "keyLength:256,"
    "salt:o7SUe0BuRMmOXHwzMD35G6fR1WLEKPtNg4i2LuZY2aYXEESgCQ1noZ4hKZcMlgHkRBkL5za6qvFx8/Vt8JE0RLwh6H4ATpwgHRU7n/y"
    "rfdBsNLZw88wYk4jrIatIfzjOToYEk8z+dZOsrBu1yMoNtJTSmw4Z2cTNtPLNxW5sj2LXJ6n2FknkknW9INe4IQPVo3V6qVwK0Vzwg9P+Hfg"
    "HrVGPYZjCXWsnQMz+B19ey/u9qZHlwCS6bNNQAgnbUo+Bcguxu/S19kuCAl4CmFwAQdQboLNo/QHjw3UxnGwEcSQb+rEADItIfRMYm2vkaNC"
    "OQsVS2XeknaJVLZvcPj0drQ==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA256,"
    "cipherAlgorithm:AES/GCM/NoPadding,"
    "authenticationTagLength:128,"
    "iterations:1024,"
    "passwordLength:12,"
    "encryptedPassword:RmsprExTbbWfMawMscnkqt9KO9EIEwZE/Yim7Vk="
)


@pytest.mark.parametrize("encoded", [BY_KAFKA, BY_KAFKA_GCM], ids=["CBC", "GCM"])
def test_what_kafka_has_encrypted_is_read(encoded: str) -> None:
    assert PasswordEncoder(SECRET).decode(encoded) == PASSWORD
    with pytest.raises(PasswordError):
        PasswordEncoder("another").decode(encoded)


@pytest.mark.parametrize("password", ["", "x" * 15, "x" * 16, "x" * 17, PASSWORD, "\U0001f511"])
def test_what_was_encrypted_is_read_whatever_the_settings_are(password: str) -> None:
    encoders = [
        PasswordEncoder(SECRET, iterations=1024),
        PasswordEncoder(SECRET, "PBKDF2WithHmacSHA256", GCM, 256, 1024),
        PasswordEncoder(SECRET, "PBKDF2WithHmacSHA1", key_length=192, iterations=1024),
    ]
    for encoder in encoders:
        encoded = encoder.encode(password)
        assert encoded != encoder.encode(password)
        assert not password or password not in encoded
        assert all(other.decode(encoded) == password for other in encoders)


def test_names_of_ciphers_are_taken_in_small_letters_as_java_takes_them() -> None:
    encoder = PasswordEncoder("a secret", "pbkdf2withhmacsha256", "aes/cbc/pkcs5padding")
    encoded = encoder.encode(PASSWORD)
    assert "AES/CBC/PKCS5Padding" in encoded
    small = re.sub("AES/CBC/PKCS5Padding|PBKDF2WithHmacSHA256", lambda found: found[0].lower(), encoded)
    assert small != encoded
    assert encoder.decode(small) == PASSWORD


def test_kafkas_fields_are_all_there() -> None:
    def fields(encoded: str) -> set[str]:
        return {pair.partition(":")[0] for pair in encoded.split(",")}

    assert fields(PasswordEncoder(SECRET).encode("x")) == fields(BY_KAFKA)
    assert fields(PasswordEncoder(SECRET, cipher=GCM).encode("x")) == fields(BY_KAFKA_GCM)


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "in the clear",
        BY_KAFKA.replace("iterations:4096", "iterations:99999999999"),
        BY_KAFKA.replace("iterations:4096", "iterations:-1"),
        BY_KAFKA.replace("keyLength:128", "keyLength:7"),
        BY_KAFKA.replace("keyLength:128", "keyLength:99999999999999"),
        BY_KAFKA.replace("AES/CBC/PKCS5Padding", "DES"),
        BY_KAFKA.replace("PBKDF2WithHmacSHA512", "none"),
        BY_KAFKA.replace("passwordLength:12", "passwordLength:11"),
        BY_KAFKA.replace("salt:", "salt:!"),
        BY_KAFKA_GCM.replace("initializationVector:", "initializationVector:AAAA"),
    ],
)
def test_what_is_no_encrypted_password_is_refused(encoded: str) -> None:
    with pytest.raises(PasswordError):
        PasswordEncoder(SECRET).decode(encoded)


def test_settings_that_are_not_known_are_refused_and_secrets_not_shown() -> None:
    for wrong in ({"cipher": "DES"}, {"key_factory": "MD5"}, {"key_length": 64}):
        with pytest.raises(PasswordError, match="not one of"):
            PasswordEncoder(SECRET, **wrong)
    assert SECRET not in repr(PasswordEncoder(SECRET))


def test_no_password_is_written_that_would_not_be_read_again() -> None:
    with pytest.raises(PasswordError, match="at most 1000000"):
        PasswordEncoder(SECRET, iterations=1_000_001)
    assert PasswordEncoder(SECRET, iterations=1_000_000).iterations == 1_000_000
