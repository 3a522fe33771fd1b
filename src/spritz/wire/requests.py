"""The receiver's table from `kind` to type: the requests that a daemon accepts, and the decoding of their bodies."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder

from spritz.model.errors import ESLURM, SpritzError
from spritz.wire.bounded import checker
from spritz.wire.envelope import Request
from spritz.wire.unknown_fields import unknown_field

#: how msgspec begins to say that a text is longer than its bound
_TOO_LONG = "Expected `str` of length <="


class BadRequest(SpritzError):
    """The request cannot be decoded or is not accepted here; the connection stays usable."""


class RequestDecoder:
    """Decodes the bodies of requests. `types`: the accepted Struct classes; their names must differ.

    Requests with a number, text or list out of its range are refused (`model.bounds`); so are requests with `exact =
    True` that have unknown fields.
    """

    __slots__ = ("_checkers", "_decoders")

    def __init__(self, types: Iterable[type[Struct]]) -> None:
        self._decoders: dict[str, Decoder[Struct]] = {}
        self._checkers: dict[str, Decoder[object]] = {}
        for body_type in types:
            kind = body_type.__name__
            if kind in self._decoders:
                raise ValueError(f"two requests are called {kind}")
            self._decoders[kind] = Decoder(body_type)
            if (check := checker(body_type)) is not None:
                self._checkers[kind] = check

    @property
    def kinds(self) -> list[str]:
        """Names of the accepted requests, sorted."""
        return sorted(self._decoders)

    def decode(self, request: Request) -> Struct:
        """The body of a request. Raises BadRequest for an unknown kind, a body that does not fit, or a token."""
        decoder = self._decoders.get(request.kind)
        if decoder is None:
            raise BadRequest(
                f"Unexpected message received: {request.kind[:60]!r} is not a request that this daemon takes",
                code="SLURM_UNEXPECTED_MSG_ERROR",
            )
        if request.token is not None:
            raise BadRequest(
                "Protocol authentication error: signed tokens are not supported yet",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint="connect without a token",
            )
        check = self._checkers.get(request.kind)
        try:
            if check is not None:
                check.decode(request.body)
            body = decoder.decode(request.body)
            more = unknown_field(body, request.body) if getattr(body, "exact", False) else ""
        except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
            if isinstance(error, ValidationError) and _TOO_LONG in str(error):
                raise BadRequest(
                    ESLURM["ESLURM_PATHNAME_TOO_LONG"][1],
                    code="ESLURM_PATHNAME_TOO_LONG",
                    hint=str(error).replace(_TOO_LONG, "at most").replace("- at `$.", "characters are allowed at `"),
                ) from error
            raise BadRequest(
                f"Unexpected message received: bad {request.kind}: {error}", code="SLURM_UNEXPECTED_MSG_ERROR"
            ) from error
        if more:
            raise BadRequest(
                f"Incompatible versions of client and server code: {more} is not known here",
                code="SLURM_PROTOCOL_VERSION_ERROR",
                hint="this daemon is of an earlier release: restart it with the command's",
            )
        return body
