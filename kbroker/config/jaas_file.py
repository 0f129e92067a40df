"""The JAAS file that a JVM would read: `-Djava.security.auth.login.config=FILE` in $KAFKA_OPTS.

    KafkaServer { org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="…"; };
    Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="…"; };

`Client` is how ZooKeeper is logged in at; `-Dzookeeper.sasl.clientconfig=NAME` says another context,
`-Dzookeeper.sasl.client=false` that nobody logs in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbroker.protocol.config_def import ConfigError
from kbroker.security.jaas import JaasError, LoginModule, parse_jaas_file

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def jaas_contexts() -> Mapping[str, Sequence[LoginModule]]:
    """Return the file's entries by their contexts, none without a file; raises JaasError."""
    found = _option("java.security.auth.login.config")
    if found is None:
        return {}
    file = Path(found)
    try:
        return parse_jaas_file(file.read_text(encoding="utf-8"))
    except (OSError, JaasError, UnicodeDecodeError) as error:
        raise JaasError(f"the JAAS file {file} in $KAFKA_OPTS cannot be read: {error}") from None


def zookeeper_login() -> tuple[str, str] | None:
    """Return user and password for ZooKeeper, None when nobody logs in there; raises ConfigError."""
    if (_option("zookeeper.sasl.client") or "true").lower() == "false":
        return None
    context = _option("zookeeper.sasl.clientconfig") or "Client"
    try:
        entries = jaas_contexts().get(context)
    except JaasError as error:
        raise ConfigError(str(error)) from None
    if not entries:
        return None
    module = entries[0]
    if module.name != DIGEST_MODULE:
        raise ConfigError(
            f"{context} in the JAAS file names {module.name}: for ZooKeeper only {DIGEST_MODULE} is known"
        )
    if not module.options.get("username") or not module.options.get("password"):
        raise ConfigError(
            f"{context} in the JAAS file has no username and password: ZooKeeper is logged in at with them"
        )
    return module.options["username"], module.options["password"]


def _option(name: str) -> str | None:
    found = re.search(rf"-D{re.escape(name)}=(\S+)", os.environ.get("KAFKA_OPTS", ""))
    return found and found[1].strip("\"'")
