"""Errors between a caller and a daemon, in the words of Slurm's commands."""

from __future__ import annotations

from spritz.model.errors import ESLURM, SpritzError
from spritz.wire.envelope import Failure

#: OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED. Source: openssl-verification-options(1).
_WRONG_TIME = (9, 10)


class ClientError(SpritzError):
    """The daemon could not answer: not found, not reached, not trusted, not understood, or too slow."""

    @classmethod
    def of(cls, code: str, hint: str = "") -> ClientError:
        """An error with Slurm's own text for `code`."""
        return cls(ESLURM.get(code, (1, code))[1], code=code, hint=hint)


class RemoteHost(ClientError):
    """The host is another machine, and no daemon with keys of a cluster that spans machines runs on this one."""

    @classmethod
    def of_host(cls, host: str) -> RemoteHost:
        return cls(
            f"{host} is another machine; here is no key of the cluster, or neither slurmd nor sackd runs",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint="`spritz join HOST --token T` makes this machine a member, as does the cluster's slurm.key next to "
            "slurm.conf; commands then speak to slurmd or sackd of this machine, which `spritz join` starts again",
        )

    def naming(self, setting: str) -> RemoteHost:
        """The same error with the setting at fault, such as `SlurmctldHost=ctl2`."""
        return RemoteHost(f"{setting}: {self.message}", code=self.code, hint=self.hint)


class NoDaemonHere(ClientError):
    """Neither a controller nor another daemon that knows the way to the leading controller runs on this machine."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came: the request may or may not have been carried out."""


class CallTimeout(ClientError):
    """No answer came in time: the request may or may not have been carried out."""


class RemoteError(ClientError):
    """The daemon answered, and refused. `errno` is Slurm's number of `code`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            failure.message,
            code=failure.code,
            hint=failure.hint,
            exit_code=failure.exit_code,
            details=failure.details,
        )
        self.failure = failure
        self.errno = failure.errno
        #: messages of the site's plugins for the user: the first of `details`
        self.told = failure.details[: failure.told]


def unreachable(hint: str = "") -> ClientError:
    """`Unable to contact slurm controller (connect failure)`; the hint lists the addresses tried."""
    return ClientError.of("SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", hint)


#: Ends the problem of a certificate that is refused for its time.
CLOCK_QUESTION = "is the clock of this machine right?"


def certificate_problem(error: OSError) -> str:
    """Why the peer's certificate was refused, and that a wrong clock may be the cause; "" for other errors."""
    message = str(getattr(error, "verify_message", ""))
    clock = f"; {CLOCK_QUESTION}" if getattr(error, "verify_code", 0) in _WRONG_TIME else ""
    return message + clock
