"""Where OAUTHBEARER's tokens come from when no function of the user's gives them: an OAuth server, or nobody's.

    TokenEndpoint("https://idp/token", "id", "secret", "kafka")()      a client's own grant (RFC 6749, 4.4)
    UnsecuredTokens({"unsecuredLoginStringClaim_sub": "alice"})()       without a signature, for development

Each call returns a new token; it may wait, and is made outside of an event loop.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.errors import NotConnected
from kbroker.security.tokens import unsecured_claims, unsecured_token

TIMEOUT_S = 10.0
LARGEST_ANSWER = 1 << 20
PASSING = 408, 425, 429
"""Answers of 400 to 499 after which the same question may be asked again (RFC 9110, 8470, 6585)."""


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Asks an OAuth server with an id and a secret; raises NotConnected, PermissionError where it refuses them, and
    ValueError where it has no address to ask. None of them holds the secret.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None

    def __call__(self) -> str:
        """Return a new token."""
        import urllib.error  # these load http and email, which brokers and clients do without as a rule
        import urllib.parse
        import urllib.request

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        secret = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        headers = {
            "Authorization": f"Basic {secret}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if urllib.parse.urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"the token endpoint {self.url} is no http or https address")
        request = urllib.request.Request(self.url, urllib.parse.urlencode(form).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                answer: Any = json.loads(response.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            error.close()
            final = 400 <= error.code < 500 and error.code not in PASSING
            raise (PermissionError if final else NotConnected)(
                f"the token endpoint {self.url} answers {error.code} {error.reason}"
            ) from None
        except (urllib.error.URLError, TimeoutError) as error:
            raise NotConnected(f"the token endpoint {self.url} does not answer: {error}") from None
        except ValueError:
            raise NotConnected(f"the token endpoint {self.url} answers no JSON") from None
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise NotConnected(f"the token endpoint {self.url} gives no access_token")
        return token


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Makes tokens of the unsecuredLogin… options of a log-in module."""

    options: Mapping[str, str] = field(repr=False)

    def __call__(self) -> str:
        """Return a new token; raises ValueError when the options name nobody."""
        claims = unsecured_claims(self.options, int(time.time() * 1000))
        if claims is None:
            raise ValueError("unsecuredLoginStringClaim_sub is missing: it names whom the token stands for")
        return unsecured_token(claims)
