"""auth/jwt for daemons: the keys that sign and verify tokens.

Needs PyJWT (the extra `rest`), which is imported when a daemon is configured for it.

Source: slurm.conf(5) AuthAltTypes, AuthAltParameters (jwt_key, jwks, userclaimfield, disable_token_creation,
max_token_lifespan).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from msgspec import json

from spritz.model.errors import ESLURM, SpritzError
from spritz.model.tokens import LIFESPAN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable


#: File in StateSaveLocation with the key, if AuthAltParameters names none.
DEFAULT_KEY = "jwt_hs256.key"

#: Characters of a token.
TOKEN_LENGTH_MAX = 16 * 1024

#: Slurm's "infinite", a number of 32 bits.
_INFINITE = 0xFFFFFFFF


class BadToken(SpritzError):
    """The token is refused. The message never gives details: these would help forgers."""

    def __init__(self, hint: str = "") -> None:
        super().__init__("Protocol authentication error", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR", hint=hint)


class TokenKeys:
    """Keys for signing and verifying tokens. Raises SpritzError for an unusable key file."""

    def __init__(self, parameters: Iterable[str], default_key: str = "") -> None:
        options = dict(word.partition("=")[::2] for word in parameters)
        key_path, jwks_path = options.get("jwt_key", ""), options.get("jwks", "")
        if not key_path and not jwks_path:
            key_path = default_key
        try:
            import jwt
        except ImportError as error:
            from spritz.extras import pip_install

            raise SpritzError(
                "AuthAltTypes=auth/jwt needs PyJWT, which is not installed", hint=pip_install("rest")
            ) from error
        self._jwt = jwt
        self._key = _read(key_path, stat.S_IRWXO) if key_path else b""
        self._public = _public_keys(_read(jwks_path, stat.S_IWOTH), jwks_path) if jwks_path else {}
        self._claim = options.get("userclaimfield", "")
        self._masters_only = "disable_token_creation" in options
        self._longest = _seconds(options.get("max_token_lifespan", ""))

    def verify(self, token: str, now: float) -> tuple[str, float]:
        """The user in a token, and the end of its validity. Raises BadToken."""
        jwt = self._jwt
        if len(token) > TOKEN_LENGTH_MAX:
            raise BadToken()
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            key: Any = None
            if algorithm == "HS256" and self._key:
                key = self._key
            elif algorithm == "RS256":
                key = self._public.get(header.get("kid", ""))
            if key is None:  # `none`, and any algorithm without a key here
                raise BadToken()
            options = {"require": ["exp"], "verify_aud": False, "verify_exp": False, "verify_iat": False}
            claims = jwt.decode(token, key, algorithms=[algorithm], options=options)
            expires = float(claims["exp"])
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise BadToken() from error
        if not expires > now:
            raise BadToken("the token has expired")
        user = claims.get(self._claim) if self._claim else claims.get("sun") or claims.get("username")
        if not isinstance(user, str) or not user:
            raise BadToken()
        return user, expires

    def make(self, user: str, lifespan_seconds: int | None, now: float, *, master: bool) -> str:
        """A token for a user; `master`: the caller is SlurmUser or root. Raises SpritzError."""
        longest = self._longest
        seconds = LIFESPAN_SECONDS if lifespan_seconds is None else lifespan_seconds
        if longest is not None and lifespan_seconds is None:
            seconds = min(seconds, longest)
        if self._masters_only and not master:
            raise refused("ESLURM_ACCESS_DENIED", "AuthAltParameters=disable_token_creation")
        if not self._key:
            raise refused("ESLURM_AUTH_UNABLE_TO_GENERATE_TOKEN", "AuthAltParameters has no jwt_key to sign with")
        if seconds <= 0 or (longest is not None and seconds > longest):
            hint = f"a lifespan is from 1 to {longest or _INFINITE} seconds"
            raise refused("ESLURM_AUTH_UNABLE_TO_GENERATE_TOKEN", hint)
        claims = {"exp": int(now) + min(seconds, _INFINITE), "iat": int(now), "sun": user}
        return str(self._jwt.encode(claims, self._key, algorithm="HS256"))


def token_keys(types: Iterable[str], parameters: Iterable[str], state_directory: str = "") -> TokenKeys | None:
    """Keys by a daemon's configuration; None unless auth/jwt is among AuthAltTypes. Raises SpritzError."""
    if not any(name.removeprefix("auth/") == "jwt" for name in types):
        return None
    return TokenKeys(parameters, os.path.join(state_directory, DEFAULT_KEY) if state_directory else "")


def refused(code: str, hint: str = "") -> SpritzError:
    return SpritzError(ESLURM[code][1], code=code, hint=hint)


def _read(path: str, refused_modes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(1 << 20)
    except OSError as error:
        raise SpritzError(f"AuthAltParameters: cannot read {path}: {error.strerror}") from error
    if mode & refused_modes:
        raise SpritzError(
            f"AuthAltParameters: key file is insecure: '{path}' mode={stat.S_IMODE(mode):#o}",
            hint=f"chmod o-rwx {path}",
        )
    if not content:
        raise SpritzError(f"AuthAltParameters: {path} is empty")
    return content


def _public_keys(text: bytes, path: str) -> dict[str, Any]:
    """RS256 keys of a JWKS file, by their key ids."""
    from jwt import PyJWKSet, PyJWTError

    try:
        keys = PyJWKSet.from_dict(json.decode(text)).keys
    except (PyJWTError, ValueError, TypeError, AttributeError) as error:
        raise SpritzError(f"AuthAltParameters: {path} is no JSON Web Key Set: {error}") from error
    return {key.key_id: key.key for key in keys if key.key_id and key.key_type == "RSA"}


def _seconds(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise SpritzError(f"AuthAltParameters: max_token_lifespan={text} is no number of seconds")
    return int(text)
