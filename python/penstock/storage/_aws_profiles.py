"""Credentials, region and endpoint for S3, from where AWS's own tools take them, in their order.

1. options in the call: keys, or `aws_profile`
2. the environment: `AWS_ACCESS_KEY_ID`, …
3. a profile of `~/.aws/credentials` and `~/.aws/config`: the one that `AWS_PROFILE` names, or `default`
4. the machine: metadata of EC2, ECS, EKS, which the client in Rust asks itself

Keys in a profile are read here. All else that a profile can say (SSO, roles, programs that give credentials) is
botocore's, if it is installed. The client asks for credentials again before they expire.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from penstock.errors import StorageError, UnsupportedError

Credentials = Callable[[], dict[str, str]]
"""Returns keys by name, and when they expire (`expires_at`)."""

_KEYS = ("access_key_id", "secret_access_key")
_TOKENS = ("session_token", "token")
_OTHERS = (
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
)
_REGIONS = ("region", "default_region")
_ENDPOINTS = ("endpoint_url_s3", "endpoint_url", "endpoint")
_OF_BOTOCORE = ("role_arn", "sso_", "credential_process", "login_session", "web_identity_token_file")  # fmt: skip
_TRUE = ("true", "1", "yes", "on")


class Resolved(NamedTuple):
    """What a client for S3 is made of."""

    options: dict[str, str]
    credentials: Credentials | None
    """None: the client finds them by itself, in the options, the environment or the machine's metadata."""


def resolved(given: Mapping[str, str]) -> Resolved:
    """The options and credentials for a client of S3, for `storage_options=`.

    Raises:
        StorageError: there is no such profile, or it gives no credentials.
        UnsupportedError: the profile needs botocore, which is not installed.
    """
    options = {f"aws_{n.removeprefix('aws_')}" if _is_known(n) else n: v for n, v in given.items()}
    named = options.pop("aws_profile", None)
    profile = _profile(named)
    # The client prefers the environment's AWS_REGION and AWS_ENDPOINT_URL_S3 to these names.
    _prefer(options, "aws_region", _REGIONS, profile.get("region"))
    _prefer(options, "aws_endpoint_url_s3", _ENDPOINTS, profile.get("endpoint_url"))
    return Resolved(options, _credentials(options, profile, is_named=named is not None))


def _is_known(name: str) -> bool:
    known = (*_KEYS, *_TOKENS, *_OTHERS, *_REGIONS, *_ENDPOINTS, "profile", "skip_signature")
    return name.removeprefix("aws_") in known


def _prefer(
    options: dict[str, str], name: str, others: tuple[str, ...], of_profile: str | None
) -> None:
    """Set an option to the first of its names that the caller gave, or else to the profile's if the environment has
    none."""
    given = [options.pop(f"aws_{other}", None) for other in others]
    value = next((value for value in given if value is not None), None)
    if value is None and not any(_environment(other) for other in others):
        value = of_profile
    if value is not None:
        options[name] = value


def _environment(*names: str) -> bool:
    return all(os.environ.get(f"AWS_{name.upper()}") for name in names)


# Complexity: one line for each place where AWS's tools look, in their order.
def _credentials(
    options: Mapping[str, str], profile: _Profile, *, is_named: bool
) -> Credentials | None:
    if options.get("aws_skip_signature", "").lower() in _TRUE:
        return None
    if all(f"aws_{key}" in options for key in _KEYS):
        return _Given(options) if _environment("session_token") else None
    if any(f"aws_{name}" in options for name in (*_KEYS, *_OTHERS)):
        return None
    if not is_named and (_environment(*_KEYS) or _environment("skip_signature")):
        return None
    if "role_arn" in profile.values:
        return _of_botocore(profile, options)
    if not is_named and _environment("web_identity_token_file", "role_arn"):
        return None
    if any(name.startswith("sso_") for name in profile.values):
        return _of_botocore(profile, options)
    if all(profile.get(f"aws_{key}") for key in _KEYS):
        return _Read(profile.name)
    if any(name.startswith(_OF_BOTOCORE) for name in profile.values):
        return _of_botocore(profile, options)
    return None


# -- profiles -------------------------------------------------------------------------------------


class _Profile(NamedTuple):
    name: str
    values: dict[str, str]

    def get(self, name: str) -> str | None:
        return self.values.get(name)


def _profile(named: str | None) -> _Profile:
    """A profile by name; None for that of the environment, or `default`, which may be missing."""
    said = named or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name = said or "default"
    keys, config = _files()
    sections = [(config, f"profile {name}"), (keys, name)]
    if name == "default":
        sections.insert(0, (config, name))
    found = [file[section] for file, section in sections if section in file]
    if not found and said:
        raise StorageError(
            f"there is no AWS profile {name!r} in {' or '.join(_paths())}",
            hint="AWS_PROFILE or storage_options={'aws_profile': …} with the name of another profile",
        )
    values = {name: value for section in found for name, value in section.items()}
    return _Profile(name, {**values, **_endpoint(values, config)})


def _endpoint(values: Mapping[str, str], config: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The endpoint for S3 that a profile sets, itself or in its services."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() in _TRUE:
        return {"endpoint_url": ""} if "endpoint_url" in values else {}
    services = config.get(f"services {values.get('services', '')}", {})
    for line in services.get("s3", "").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "endpoint_url":
            return {"endpoint_url": value.strip()}
    return {}


def _paths() -> tuple[str, str]:
    """The files with keys and with other settings."""
    names = ("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")
    found = [os.environ.get(name) or os.path.join("~", ".aws", file) for name, file in names]
    return os.path.expanduser(found[0]), os.path.expanduser(found[1])


def _files() -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, Mapping[str, str]]]:
    keys, config = map(_read, _paths())
    return keys, config


def _read(path: str) -> Mapping[str, Mapping[str, str]]:
    """The sections of a file; none if it is missing."""
    import configparser  # only readers of S3 need it

    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except OSError:
        return {}  # it is missing, or another user's
    except (configparser.Error, UnicodeDecodeError):
        # The error of configparser shows lines, which may be secret.
        raise StorageError(
            "this file of AWS profiles cannot be understood",
            file=path,
            hint="`[name]` lines and `key = value` lines only",
        ) from None
    return {
        name: {key: value or "" for key, value in parser[name].items()}
        for name in parser.sections()
    }


# -- credentials ----------------------------------------------------------------------------------


class _Given:
    """Keys of the caller. Without this, the client would add a token of the environment to them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._keys = {f"aws_{key}": options[f"aws_{key}"] for key in _KEYS}
        token = next((options[f"aws_{t}"] for t in _TOKENS if options.get(f"aws_{t}")), None)
        if token is not None:
            self._keys["aws_session_token"] = token

    def __call__(self) -> dict[str, str]:
        return dict(self._keys)


class _Read:
    """Keys in a profile. They are read again now and then: some programs put new ones there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> dict[str, str]:
        profile = _profile(self._name)
        names = (*(f"aws_{key}" for key in _KEYS), "aws_session_token")
        return {name: value for name in names if (value := profile.get(name))}


class _Botocore:
    """What botocore finds for a profile, in each process by a session of its own: its locks do not survive forks."""

    def __init__(self, name: str, region: str | None) -> None:
        self._name = name
        self._region = region
        self._found: Any = None
        self._pid = 0

    def __call__(self) -> dict[str, str]:
        if self._pid != os.getpid():
            from botocore.exceptions import NoCredentialsError
            from botocore.session import Session  # an optional dependency

            session = Session(profile=self._name)
            if self._region:
                session.set_config_variable("region", self._region)
            self._found = session.get_credentials()
            if self._found is None:
                raise NoCredentialsError
            self._pid = os.getpid()
        keys = self._found.get_frozen_credentials()
        found = {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
        if keys.token:
            found["aws_session_token"] = keys.token
        expiry = getattr(self._found, "_expiry_time", None)  # it has no public name
        if expiry is not None:
            found["expires_at"] = str(expiry.timestamp())
        return found


def _of_botocore(profile: _Profile, options: Mapping[str, str]) -> Credentials:
    if find_spec("botocore") is None:
        raise UnsupportedError(
            f"the AWS profile {profile.name!r} uses SSO, a role or a program, which needs botocore",
            hint="pip install 'penstock[aws]'",
        )
    region = options.get("aws_region") or os.environ.get("AWS_REGION")
    credentials = _Botocore(profile.name, region)
    try:
        credentials()
    except Exception as error:
        # Its text may show what a program printed, or an address.
        kind = type(error).__name__
        raise StorageError(
            f"the AWS profile {profile.name!r} gives no credentials ({kind})",
            hint="`aws sso login`, or another profile",
        ) from None
    return credentials
