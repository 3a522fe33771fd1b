"""Connections to Spritz's daemons: clients and servers of the protocol.

Owns connections, and requests and responses on them; knows no particular request. Requests are msgspec Structs (of
`model`), told apart by class name; the caller names the type of the answer. Importing this package imports nothing;
commands import only `client.sync` and `client.locate`, which import no asyncio, no logging and no `socket`.

Commands (blocking)
-------------------
    from spritz.client.sync import connect_controller

    with connect_controller() as controller:                   # finds slurm.conf; Unix socket, else TCP
        reply = controller.call(SubmitJob(…), JobSubmitted)     # RemoteError if refused
        for line in controller.stream(Follow(…), Line): …

`sync`      `connect_controller`, `connect_address`, `Connection` (`call`, `call_exact`, `call_raw`, `stream`;
            `send_many`, `receive`)
`locate`    `locate_controller() -> ControllerConfig`, `find_slurm_conf`, `state_home`, `controller_socket_name`
`same_machine`  `refuse_remote(keys and hosts)`: an error for a configured host that is another machine
`errors`    `ClientError` (not reachable) with `ConnectionLost`, `CallTimeout`; `RemoteError` (refused).
            All are SpritzErrors: `message`, `code`, `hint`, `exit_code`; `RemoteError.errno` is Slurm's number.

Daemons (asyncio)
-----------------
    from spritz.client.server import Server

    async with Server({SubmitJob: on_submit, …}, role="slurmctld", log=log) as server:
        await server.listen_unix(controller_socket_name("cluster", 6817))
        await server.listen_tcp("", 6817)

`server`    `Server(table, role=, log=)`: `listen_unix`, `listen_tcp`, `listen_socket`, `stop_listening`, `channels`
`handling`  handlers: their `Call`, and their result: a Struct, a Rejection, None, an awaitable of these, an async
            iterator (a stream), or `DEFERRED` to answer later by `call.reply(…)`. `call.caller` is pid, uid and gid
            by the kernel; `call.on_abandon(callback)` reports that the caller has gone.
`relay`, `hub`, `mux`, `resumable_stream`   users' connections and steps' streams between machines, through the
            controller; `peers`: directly from node to node
`channel`   `Channel`, one connection: `call`, `stream`, `notify`, `on_close`; both sides may send requests
`admission` limits of each peer: connections, memory, time (`Limits`); `quota` keeps a server's accounts
`turns`     shares the time of the daemon's loop among users; places for work outside of it
`log_throttle`  one log line for each peer and minute
`aio`       `connect(addresses, …) -> Channel`; `PersistentChannel`, which reconnects
`leader`    finds the controller or slurmdbd that leads, for daemons that stay connected to it
`membership`, `member`   a cluster that spans machines: its keys; slurmd and sackd on machines of their own
`joining`, `configless`, `blocking_tls`   joining such a cluster, and the configuration that its controller sends
`munged`, `tokens`   who a caller is: auth/munge, auth/jwt
`submission_retry`   submissions whose answer was lost; `statistics`: requests by kind and user

Invariants: every accepted request gets exactly one last response, or its connection ends; no input from a peer raises
in a daemon; every wait of a blocking caller has a deadline unless it asked for none. Before a client sends a request,
the kernel must confirm that the server runs as root, SlurmUser or the client's own user; servers on other machines are
therefore refused.

Test it with `pytest tests/unit/client`; `python -m benchmarks.wire` measures it.
"""
