"""What makes a development cluster a secured one: certificates, users with passwords, rules about what they may do.

    DIR/secure/authority.pem, broker.pem     see certificates.py
    DIR/secure/passwords.json                user -> password, made at the first start; mode 0600
    DIR/secure/app/ … admin/                 each user's settings in the forms of client_forms.py

Passwords go nowhere else but into the brokers' properties, which nobody but their owner can read.
"""

from __future__ import annotations

import hmac
import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.dev.certificates import AUTHORITY, BROKER, ensure_certificates
from kbroker.dev.client_forms import MECHANISM, Access, jaas_config, shown_forms, write_forms
from kbroker.dev.private_files import write_private
from kbroker.security.acls import (
    CLUSTER_NAME,
    EVERY_HOST,
    EVERY_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    Pattern,
)

if TYPE_CHECKING:
    from kbroker.client.security import Security
    from kbroker.controller.zookeeper import ZooKeeper

BETWEEN_BROKERS = "broker"
ADMIN, APP, READER = "admin", "app", "reader"
USERS = {
    APP: "makes topics, writes and reads them, with groups and transactions",
    READER: "reads all topics, with groups",
    ADMIN: "may do everything",
}
"""User -> what for; whoever lets the brokers talk to each other is no user."""
SUPER_USERS = (BETWEEN_BROKERS, ADMIN)
PASSWORD_BYTES = 24

_Does = AclOperation
RULES: dict[str, dict[tuple[AclResource, str], tuple[AclOperation, ...]]] = {
    APP: {
        (AclResource.TOPIC, EVERY_NAME): (
            *(_Does.READ, _Does.WRITE, _Does.CREATE, _Does.DELETE, _Does.DESCRIBE, _Does.DESCRIBE_CONFIGS),
            *(_Does.ALTER, _Does.ALTER_CONFIGS),
        ),
        (AclResource.GROUP, EVERY_NAME): (_Does.READ, _Does.DESCRIBE, _Does.DELETE),
        (AclResource.TRANSACTIONAL_ID, EVERY_NAME): (_Does.WRITE, _Does.DESCRIBE),
        (AclResource.CLUSTER, CLUSTER_NAME): (_Does.IDEMPOTENT_WRITE,),
    },
    READER: {
        (AclResource.TOPIC, EVERY_NAME): (_Does.READ, _Does.DESCRIBE, _Does.DESCRIBE_CONFIGS),
        (AclResource.GROUP, EVERY_NAME): (_Does.READ, _Does.DESCRIBE),
    },
}


class Secured:
    """A cluster's certificates, users and rules, in a folder of its data directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._passwords: dict[str, str] = {}

    def prepare(self, zookeeper_connect: str, timeout_ms: int) -> None:
        """Make what is missing in the folder, and let ZooKeeper know the users. Raises StoreError, ZooKeeperError."""
        from kbroker.cluster.without_brokers import in_zookeeper

        self.folder.mkdir(exist_ok=True, mode=0o700)
        ensure_certificates(self.folder, datetime.now(UTC))
        self._passwords = _passwords_in(self.folder / "passwords.json")
        in_zookeeper(zookeeper_connect, self._write_users, timeout_ms)

    async def _write_users(self, zookeeper: ZooKeeper) -> None:
        """Give every user its password; who is new here gets its rules, too: those of others may have been changed."""
        from kbroker.cluster.scram_users import ScramUsers
        from kbroker.cluster.without_brokers import new_credential

        await zookeeper.ensure_acl_paths()
        users = ScramUsers(zookeeper)
        known = await users.read(self._passwords)
        for user, password in self._passwords.items():
            await users.change(user, {MECHANISM: new_credential(MECHANISM, password)}, without_controller=True)
            if user not in known:
                await _write_rules(zookeeper, user)

    def broker_properties(self, port: int) -> dict[str, str]:
        """What a broker on loopback is set to; holds a password and the name of a file with a key."""
        own_password = self._passwords[BETWEEN_BROKERS]
        own = f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config"
        return {
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            own: jaas_config(BETWEEN_BROKERS, own_password),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / BROKER),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / AUTHORITY),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "delegation.token.secret.key": hmac.digest(own_password.encode(), b"delegation tokens", "sha256").hex(),
            "super.users": ";".join(f"User:{user}" for user in SUPER_USERS),
        }

    def client_security(self) -> Security:
        """How this process reaches the brokers: as the administrator."""
        from kbroker.client.security import Security

        return Security(
            security_protocol="SASL_SSL",
            ssl_cafile=str(self.folder / AUTHORITY),
            sasl_mechanism=MECHANISM,
            sasl_username=ADMIN,
            sasl_password=self._passwords[ADMIN],
        )

    def write_settings(self, bootstrap: str) -> None:
        """Write all users' settings for clients."""
        for user in USERS:
            write_forms(self.folder / user, self._access(user, bootstrap))

    def description(self, bootstrap: str) -> str:
        """Say who may log in, and how clients do; no password."""
        users = "".join(f"  {user:<8} {what}: {self.folder / user}\n" for user, what in USERS.items())
        forms = shown_forms(self.folder / APP, self._access(APP, bootstrap))
        return (
            f"TLS, logins by {MECHANISM} and access rules are on. Users, and where their settings with passwords are "
            f"(for your eyes alone):\n{users}\n"
            f"As {APP}:\n\n{forms}"
        )

    def _access(self, user: str, bootstrap: str) -> Access:
        return Access(bootstrap, self.folder / AUTHORITY, user, self._passwords[user])


def _passwords_in(file: Path) -> dict[str, str]:
    """Read the passwords; those that are missing are made and written."""
    found = json.loads(file.read_text()) if file.exists() else {}
    passwords = {user: found.get(user) or secrets.token_urlsafe(PASSWORD_BYTES) for user in (BETWEEN_BROKERS, *USERS)}
    if passwords != found:
        write_private(file, json.dumps(passwords, indent=2) + "\n")
    return passwords


async def _write_rules(zookeeper: ZooKeeper, user: str) -> None:
    for (resource, name), operations in RULES.get(user, {}).items():
        rules = frozenset(Entry(f"User:{user}", EVERY_HOST, operation, AclPermission.ALLOW) for operation in operations)
        await zookeeper.change_acls(Pattern(resource, AclPattern.LITERAL, name), rules.union)
