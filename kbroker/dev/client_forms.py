"""How clients of all kinds reach a secured development cluster: their settings in the form that each of them reads.

    FOLDER/python.json        Producer(**…) of kbroker         FOLDER/java.properties    --command-config …
    FOLDER/librdkafka.json    confluent_kafka.Producer(…)      FOLDER/spark.json         .options(**…)
    FOLDER/kcat.conf          kcat -F …                        FOLDER/profile.toml       kbroker --profile …

The files hold the password, what is shown of them does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbroker.dev.broker_process import properties_text
from kbroker.dev.private_files import write_private

MECHANISM = "SCRAM-SHA-512"
HIDDEN = "********"
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Access:
    """What a client has to know."""

    bootstrap: str
    authority: Path
    user: str
    password: str

    @property
    def jaas(self) -> str:
        """Name and password in Java's notation."""
        return jaas_config(self.user, self.password)

    def __repr__(self) -> str:
        return f"Access({self.user!r} at {self.bootstrap!r})"


def jaas_config(user: str, password: str) -> str:
    """Name and password in Java's notation; both are made here, and hold nothing to be escaped."""
    return f'{LOGIN_MODULE} required username="{user}" password="{password}";'


class Form(NamedTuple):
    """One kind of client: its file, how it takes it (a text with FILE), and the file's text."""

    name: str
    file: str
    use: str
    text: Callable[[Access], str]


def python_settings(access: Access) -> dict[str, str]:
    """For kbroker's own clients."""
    return {
        "bootstrap": access.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(access.authority),
        "sasl_mechanism": MECHANISM,
        "sasl_username": access.user,
        "sasl_password": access.password,
    }


def java_settings(access: Access) -> dict[str, str]:
    """For Java's clients and Kafka's tools."""
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(access.authority),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": access.jaas,
    }


def librdkafka_settings(access: Access) -> dict[str, str]:
    """For confluent-kafka, node-rdkafka, kcat and others on librdkafka."""
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(access.authority),
        "sasl.mechanism": MECHANISM,
        "sasl.username": access.user,
        "sasl.password": access.password,
    }


def spark_options(access: Access) -> dict[str, str]:
    """For spark.read and spark.readStream: of kbroker's source as of Spark's own for Kafka."""
    return {f"kafka.{key}": value for key, value in java_settings(access).items()}


def profile(access: Access) -> dict[str, str]:
    """For `kbroker --profile`."""
    settings = librdkafka_settings(access)
    return {"bootstrap": settings.pop("bootstrap.servers"), **settings}


def _json(settings: Mapping[str, str]) -> str:
    return json.dumps(settings, indent=2) + "\n"


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _toml(settings: Mapping[str, str]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


PROFILE = Form("kbroker", "profile.toml", "kbroker --profile FILE topic list", lambda access: _toml(profile(access)))
FORMS = (
    Form("Python", "python.json", 'Producer(**json.load(open("FILE")))', lambda access: _json(python_settings(access))),
    Form(
        "Java",
        "java.properties",
        "kafka-topics.sh --bootstrap-server BOOTSTRAP --command-config FILE --list",
        lambda access: properties_text(java_settings(access)),
    ),
    Form(
        "librdkafka",
        "librdkafka.json",
        'confluent_kafka.Producer(json.load(open("FILE")))',
        lambda access: _json(librdkafka_settings(access)),
    ),
    Form(
        "Spark",
        "spark.json",
        'spark.read.format("kbroker").options(**json.load(open("FILE"))).option("subscribe", "orders")',
        lambda access: _json(spark_options(access)),
    ),
    Form("kcat", "kcat.conf", "kcat -F FILE -L", lambda access: _lines(librdkafka_settings(access))),
    PROFILE,
)


def write_forms(folder: Path, access: Access) -> None:
    """Write all files, each readable for its owner alone."""
    folder.mkdir(exist_ok=True, mode=0o700)
    for form in FORMS:
        write_private(folder / form.file, form.text(access))


def shown_forms(folder: Path, access: Access) -> str:
    """Say for each kind of client how it is used, and its settings without the password."""
    hidden = Access(access.bootstrap, access.authority, access.user, HIDDEN)
    pieces = []
    for form in FORMS:
        use = form.use.replace("FILE", str(folder / form.file)).replace("BOOTSTRAP", access.bootstrap)
        settings = "".join(f"    {line}\n" for line in form.text(hidden).splitlines() if line not in "{}")
        pieces.append(f"{form.name}: {use}\n{settings}")
    return "\n".join(pieces)
