"""How the command line reaches a cluster: settings from a profile, and from `-X key=value` over them.

    kbroker --profile production topic list          kbroker -X security.protocol=SASL_SSL -X … topic list

Profiles stand in $XDG_CONFIG_HOME/kbroker/profiles.toml (~/.config without the variable), or in $KBROKER_PROFILES:

    [production]
    bootstrap = "b1:9093,b2:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "alice"
    sasl.password = "…"                 # the file is refused when others can read it and it holds a secret

A name with a slash, or one that ends in .toml, is a file that holds one profile and no header: `kbroker dev --secure`
writes such.

Both options may stand anywhere on the command line; so they are taken out of it before a command sees it.
"""

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import typer

from kbroker.cli import command_in

SECRETS = ("password", "jaas", "keystore.key", "keystore_key", "certificates", "certificate.chain", "token")
"""What the names of settings contain that are secret."""

WITHOUT_CLIENTS = ("dev", "start", "zookeeper", "jvm", "log", "help", "completion")
"""Commands that reach no cluster."""

WITH_CLIENTS_OF_OTHERS = ("verify",)
"""Settings may be theirs."""

BOOTSTRAP = ("bootstrap", "bootstrap.servers")

_chosen: dict[str, str] = {}
_on_the_line: set[str] = set()
"""What the command line itself says, in the words of its own options."""


def take_settings(words: Sequence[str]) -> list[str]:
    """Take `--profile NAME` and `-X KEY=VALUE` out of a command line, and let them hold; returns the other words."""
    _chosen.clear()
    _on_the_line.clear()
    if command_in(words) in WITHOUT_CLIENTS:
        return list(words)
    rest: list[str] = []
    profile = os.environ.get("KBROKER_PROFILE") or None
    texts: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word == "--profile" or word == "-X":
            value = next(left, None)
            if value is None:
                rest.append(word)  # typer says that a value is missing
            elif word == "-X":
                texts.append(value)
            else:
                profile = value
        elif word.startswith("--profile="):
            profile = word.removeprefix("--profile=")
        elif word.startswith("-X") and "=" in word:
            texts.append(word[2:])
        else:
            rest.append(word)
    judged = command_in(words) not in WITH_CLIENTS_OF_OTHERS
    if profile is not None:
        _chosen.update(read_profile(profile))
        _check(_chosen if judged else {}, f"--profile {profile}")
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            shown = text if not any(each in text.lower() for each in SECRETS) else "this"
            raise typer.BadParameter(f"{shown!r} is not KEY=VALUE", param_hint="-X")
        _chosen[key.strip()] = value.strip()
        _check({key.strip(): value.strip()} if judged else {}, "-X")
    return rest


def _check(settings: Mapping[str, str], hint: str) -> None:
    """Refuse what no client takes, whichever of them the command has: a profile is for all commands."""
    for key, value in settings.items():
        if key in BOOTSTRAP:
            continue
        from kbroker.client.client_config import AdminConfig, ConsumerConfig, ProducerConfig
        from kbroker.client.settings import text_problem

        problem = text_problem((AdminConfig, ProducerConfig, ConsumerConfig), key, value)
        if problem is not None:
            raise typer.BadParameter(problem, param_hint=hint)


def client_settings() -> dict[str, str]:
    """Return the settings for clients, without the bootstrap brokers."""
    return {key: value for key, value in _chosen.items() if key not in BOOTSTRAP}


def settings_for(client: Literal["admin", "producer", "consumer"]) -> dict[str, str]:
    """Return the settings without those that only the other clients take: a profile is for all commands."""
    chosen = client_settings()
    if not chosen:
        return chosen
    from kbroker.client.client_config import AdminConfig, ConsumerConfig, ProducerConfig
    from kbroker.client.settings import setting_name, settings_of

    taken = {
        name: {each.name for each in settings_of(config)}
        for name, config in (("admin", AdminConfig), ("producer", ProducerConfig), ("consumer", ConsumerConfig))
    }
    others = set().union(*taken.values()) - taken[client]
    return {key: value for key, value in chosen.items() if setting_name(key) not in others}


def keep_bootstrap() -> None:
    """The command line names its brokers: no profile goes over them, whatever they are."""
    _on_the_line.add("bootstrap")


def chosen_bootstrap(given: str) -> str:
    """Return the brokers to ask: those that the command line names, else those of the profile, else as given."""
    if "bootstrap" in _on_the_line:
        return given
    return _chosen.get("bootstrap") or _chosen.get("bootstrap.servers") or given


def profiles_file() -> Path:
    """Where the profiles stand."""
    own = os.environ.get("KBROKER_PROFILES")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "kbroker" / "profiles.toml"


def read_profile(name: str) -> dict[str, str]:
    """Return a profile's settings by their dotted names; a usage error names the file and what is wrong."""
    is_file = "/" in name or name.endswith(".toml")
    file = Path(name) if is_file else profiles_file()
    try:
        profiles = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(f"{file} cannot be read: {error.strerror} (kbroker help profiles says what it holds)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise _wrong(f'{file} is no TOML: it has [profile] headers and key = "value" lines') from None
    profile = profiles if is_file else profiles.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(key for key, value in profiles.items() if isinstance(value, dict)))
        raise _wrong(f"{file} has no profile {name!r}, only {known or 'none'}")
    settings = _flattened(profile)
    if any(secret in key for key in settings for secret in SECRETS) and file.stat().st_mode & (
        stat.S_IRGRP | stat.S_IROTH
    ):
        raise _wrong(f"others can read {file}, and it holds secrets: chmod 600 {file}")
    return settings


def _flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """TOML reads `a.b = 1` as a table in a table."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flattened(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def _wrong(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint="--profile")
