"""The process at the other end of a local connection, as the kernel identifies it.

On a Unix socket the kernel provides credentials (SO_PEERCRED). On a TCP connection between two sockets of this machine
it reports the owner of the other socket by its addresses (sock_diag). Connections from other machines have no
credentials.

Sources: unix(7) SO_PEERCRED; sock_diag(7) inet_diag_req_v2, inet_diag_msg.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct

from msgspec import Struct

_UCRED = struct.Struct("iII")


class PeerCredentials(Struct, frozen=True, kw_only=True, gc=False):
    """The process at the other end. `via`: "unix" or "tcp"; over TCP `pid` is 0 and `gid` -1: unknown.

    `by_master`: SlurmUser or root acts for this user, by a token of its own.
    """

    pid: int
    uid: int
    gid: int
    via: str = "unix"
    by_master: bool = False


def peer_credentials(connection: socket.socket) -> PeerCredentials | None:
    """Credentials of the peer of a connected socket, or None if the kernel cannot identify it."""
    if connection.family == socket.AF_UNIX:
        pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return PeerCredentials(pid=pid, uid=uid, gid=gid)
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        try:
            uid = tcp_peer_owner(connection)
        except OSError:
            return None
        return None if uid is None else PeerCredentials(pid=0, uid=uid, gid=-1, via="tcp")
    return None


def is_same_machine(connection: socket.socket) -> bool:
    """Whether a connected TCP socket's peer is on this machine: a loopback address, or our own.

    The kernel is not asked about other peers: a proxy on another machine would be indistinguishable from its user.
    """
    peer, ours = str(connection.getpeername()[0]), str(connection.getsockname()[0])
    return peer == ours or peer == "::1" or peer.startswith(("127.", "::ffff:127."))


def tcp_peer_owner(connection: socket.socket) -> int | None:
    """uid that owns the other end of a TCP connection; None if it is on another machine, or has no owner yet.

    A server's end has no owner before it has accepted the connection: callers ask again until there is one. Raises
    ConnectionError if the peer has closed its end, and another OSError if the kernel cannot be asked.
    """
    if not is_same_machine(connection):
        return None
    return _tcp_owner(connection.family, connection.getpeername(), connection.getsockname())


_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_NO_COOKIE = b"\xff" * 8
#: tcp_states.h: ESTABLISHED; SYN_RECV and NEW_SYN_RECV.
_TCP_ESTABLISHED, _TCP_NOT_YET = 1, (3, 12)
#: offset of the connection's state in inet_diag_msg
_STATE_OFFSET = _HEADER.size + 1
#: Offset of the owner in inet_diag_msg, followed by the inode: after family, state, timer, retrans, the 48-byte id,
#: expires and two queues.
_OWNER_OFFSET = _HEADER.size + 4 + 48 + 12


def _address(family: int, host: str) -> bytes:
    packed = ipaddress.ip_address(host.partition("%")[0]).packed
    return packed if family == socket.AF_INET6 else packed.ljust(16, b"\0")


def _tcp_owner(family: int, peer: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """uid that owns the socket at `peer` connected to `ours`; None if it has no owner yet."""
    identity = struct.pack(">HH", peer[1], ours[1]) + _address(family, peer[0]) + _address(family, ours[0])
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + identity + b"\0" * 4 + _NO_COOKIE
    message = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:
        netlink.settimeout(1.0)
        netlink.sendto(message, (0, 0))
        answer = netlink.recv(4096)
    is_answer = len(answer) >= _OWNER_OFFSET + 8 and _HEADER.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY
    if not is_answer or answer[_STATE_OFFSET] not in (_TCP_ESTABLISHED, *_TCP_NOT_YET):
        raise ConnectionResetError(errno.ECONNRESET, "the peer has closed the connection")
    owner, inode = struct.unpack_from("=II", answer, _OWNER_OFFSET)
    # Without an inode the owner is reported as root's and is meaningless: the socket is not accepted yet, or closed.
    return int(owner) if inode != 0 else None
