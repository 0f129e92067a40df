"""A schema registry, asked over HTTP for the schemas that framed Avro names.

    GET schemas/ids/ID                      {"schema": "…", "schemaType": "AVRO"}       schemaType is left out for Avro
    GET subjects/SUBJECT/versions/latest    {"id": ID, "schema": "…", …}
    POST subjects/SUBJECT   {"schema": "…"} {"id": ID, "version": …, …}                 the id of that very schema
    404                                     {"error_code": 40403, …}                    there is no such id or schema
    404                                     {"error_code": 40401, …}                    there is no such subject

A row is to blame for naming an id that the registry does not know, and for nothing else: a registry that is away, that
refuses or that answers nonsense is asked again for a while and then ends the task, or rows would be lost to it.
Name and password in its address (http://name:password@host:8081) log in, by HTTP's Basic scheme; no message has them.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from kbroker.client.avro import AvroError
from kbroker.client.error_base import ClientError

TIMEOUT_S = 10
RETRY_S = 30.0
PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
NO_SUCH_SUBJECT = 40401
NO_SUCH_SCHEMA = 40403
UNKNOWN = (NO_SUCH_SUBJECT, NO_SUCH_SCHEMA)
PASSING = frozenset({408, 425, 429})
"""Status codes, beside all of 500 and more, after which it is worth asking again."""


class RegistryError(ClientError, RuntimeError):
    """The registry did not tell a schema; no row is to blame."""


class UnknownSchemaError(AvroError):
    """The registry says that there is no Avro schema of this id: whoever names it is wrong."""


class Registry:
    """Schemas by their ids are kept: they never change."""

    def __init__(self, url: str, retry_for: float = RETRY_S) -> None:
        """`retry_for`: the seconds that a question is asked again while the registry is away.

        Raises ValueError for what is no address.
        """
        self._url, self._authorization = address_and_login(url)
        self._retry_for = retry_for
        self._schemas: dict[int, str] = {}

    def schema(self, schema_id: int) -> str:
        """Return a schema by its id; raises UnknownSchemaError or RegistryError."""
        if schema_id not in self._schemas:
            path = f"schemas/ids/{schema_id}"
            answer = self._ask(path)
            kind = answer.get("schemaType", "AVRO")
            if kind != "AVRO":
                raise UnknownSchemaError(f"{self._url}/{path} is {kind}")
            self._schemas[schema_id] = self._field(answer, path, "schema", str)
        return self._schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, str]:
        """Return id and text of a subject's newest schema; raises RegistryError."""
        path = f"subjects/{subject}/versions/latest"
        answer = self._ask(path)
        return self._field(answer, path, "id", int), self._field(answer, path, "schema", str)

    def id_of(self, subject: str, schema: str) -> int:
        """Return the id that a schema has in a subject; raises RegistryError, also where it has none."""
        path = f"subjects/{subject}"
        try:
            answer = self._ask(path, {"schema": schema})
        except UnknownSchemaError as error:
            raise RegistryError(
                f"{self._url}/{path} does not have the schema that is given as valueSchema, so rows would be framed"
                " with the id of another: register it there, or leave valueSchema out to write with the newest"
            ) from error
        return int(self._field(answer, path, "id", int))

    def _field(self, answer: dict[str, Any], path: str, name: str, kind: type) -> Any:
        if not isinstance(answer.get(name), kind):
            raise RegistryError(f"{self._url}/{path} does not answer as a schema registry does")
        return answer[name]

    def _ask(self, path: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        """Get an answer, or post a question."""
        request = urllib.request.Request(f"{self._url}/{path}")
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        if question is not None:
            request.data = json.dumps(question).encode()
            request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        deadline, pause = time.monotonic() + self._retry_for, PAUSE_S
        reason: OSError | http.client.HTTPException
        while True:
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    found = json.load(answer)
                    return found if isinstance(found, dict) else {}
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == http.HTTPStatus.NOT_FOUND and _error_code(error) in UNKNOWN:
                        raise UnknownSchemaError(f"{self._url}/{path}: there is no such schema") from error
                reason, passes = error, error.code in PASSING or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR
            except ValueError as error:  # not JSON
                raise RegistryError(f"{self._url}/{path}: {error}") from error
            except (OSError, http.client.HTTPException) as error:
                reason, passes = error, True
            if not passes or time.monotonic() + pause > deadline:
                raise RegistryError(f"{self._url}/{path}: {reason}") from reason
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def address_and_login(url: str) -> tuple[str, str]:
    """Return a registry's address without name and password, and the header Authorization that these make.

    Raises ValueError for what is no address, without repeating it: who errs in writing a password has it in there.
    """
    try:
        parts = urllib.parse.urlsplit(url.rstrip("/"))
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half a bracket, a port that is no number
        parts, is_address = urllib.parse.urlsplit(""), False
    if not is_address or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(
            "a registry's address must begin with http:// or https://, as http://host:port and"
            " http://name:password@host:port do (%2F for a / in the password, %3F for a ?, %23 for a #)"
        )
    login, _, place = parts.netloc.rpartition("@")
    name, _, password = login.partition(":")
    secret = f"{urllib.parse.unquote(name)}:{urllib.parse.unquote(password)}".encode()
    authorization = f"Basic {base64.b64encode(secret).decode()}" if login else ""
    return urllib.parse.urlunsplit(parts._replace(netloc=place)), authorization


@functools.lru_cache(maxsize=8)
def registry_at(url: str) -> Registry:
    """Return this process's registry of that URL: tasks that follow each other in a worker know its schemas."""
    return Registry(url)


def _error_code(error: urllib.error.HTTPError) -> object:
    try:
        return json.load(error).get("error_code")
    except (OSError, ValueError, AttributeError):
        return None
