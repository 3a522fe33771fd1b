"""Messages between commands and daemons: framing, envelopes and versions, without any I/O (sans-IO).

Owns the format of a connection. It must not open sockets, read clocks or know the meaning of requests: bodies are any
msgspec Struct, identified by their class name (`kind`).

On the wire
-----------
A connection carries *frames*: a 4-byte big-endian length, then that many bytes of msgpack. Each frame is one envelope:

- `Hello`     the first frame of each side. The connecting side sends it together with its first request, so that
              agreeing on a version costs no round trip. The accepting side answers with its own before its first
              response, or with a `Response` that carries a `Failure`, and closes.
- `Request`   `id`, `kind` (class name of the body's Struct), `body`. `id` is chosen by the sender, counts up from 1 on
              each connection and each direction; 0 asks for no answer. Either side may send requests.
- `Response`  `id` of the request, and either `body` or `error`. With `more` further responses to the same id follow;
              the last one of a stream has `more` false and no body (nil).
- `Cancel`    the sender of the request of that `id` no longer waits for its response.

`Request.token` is not used: between machines a whole connection, or a stream of one, has a credential (`credential`). A
request that carries a token is refused with an error that says so; it is never ignored.

Entry points
------------
`frames`    `FrameDecoder.feed(bytes) -> list[bytes]`, `frame(payload) -> bytes`, `FrameError`, `FRAME_BYTES_MAX`
`envelope`  the Structs; `encode_request`, `encode_response`, `encode_reply`, `encode_failure`, `decode_envelope`;
            `failure(code, message)`, `failure_of(error)`
`versions`  `hello(role)`, `negotiate(hello) -> int`, `VERSION`
`bounded`   `checker(T)`: checks that values of a request are within their ranges (`model.bounds`)
`unknown_fields`   `unknown_field(value, body)`: finds fields that the receiver does not know
`non_utf8`  `encodable(value)`: texts that are not UTF-8, made ready for a message
`credential` of users and launches between machines: `seal`, `unseal`, `Taken`; each refusal has a kind
`requests`  `RequestDecoder({T, …}).decode(request) -> Struct`: the receiver's table from kind to type

How records may change
----------------------
Envelopes are msgpack arrays: fields are only ever added at the end, with defaults. Bodies are msgpack maps: fields
may be added with defaults, and unknown ones are ignored, so peers one release apart understand each other; but
requests that change stored state (`exact = True`) are refused if they have unknown fields. Any other change must
raise `VERSION`. `Hello`, `Response` and `Failure` never change in a way that an older peer could not read.

Test it with `pytest tests/unit/wire tests/property/test_strangers.py`; `python -m benchmarks.wire` measures it.
"""
