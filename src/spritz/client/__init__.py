"""The only way to talk to a daemon of Spritz, and for daemons to be talked to.

Owns connections, and requests and responses on them; knows no particular request. Requests are msgspec Structs (of
`model`), told apart by class name; the caller says of which type the answer must be. Importing this package imports
nothing; commands import `client.sync` and `client.locate` alone, which import no asyncio, no logging and no `socket`.

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
`errors`    `ClientError` (cannot be asked) with `ConnectionLost`, `CallTimeout`, `RemoteError` (asked, and refused).
            All are SpritzErrors: `message`, `code`, `hint`, `exit_code`; `RemoteError.errno` is Slurm's number.

Daemons (asyncio)
-----------------
    from spritz.client.server import Server

    async with Server({SubmitJob: on_submit, …}, role="slurmctld", log=log) as server:
        await server.listen_unix(controller_socket_name("cluster", 6817))
        await server.listen_tcp("", 6817)

`server`    `Server(table, role=, log=)`: `listen_unix`, `listen_tcp`, `listen_socket`, `stop_listening`, `channels`
`handling`  what a handler gets (`Call`) and returns: a Struct, a Rejection, None, an awaitable of these, an async
            iterator (a stream), or `DEFERRED` to answer later by `call.reply(…)`. `call.caller` is pid, uid and gid
            by the kernel's word; `call.on_abandon(callback)` tells that the caller has gone.
`channel`   `Channel`, one connection: `call`, `stream`, `notify`, `on_close`; both sides may ask
`admission` what each peer may have: connections, memory, time (`Limits`); `quota` keeps the books of a server
`log_throttle`  one log line for each peer and minute
`aio`       `connect(addresses, …) -> Channel`; `PersistentChannel`, which connects again whenever it breaks

Invariants: every accepted request gets exactly one last response, or its connection ends; nothing a peer sends raises
in a daemon; every wait of a blocking caller has a deadline unless it asked for none. A server is asked nothing before
the kernel has said that it runs as root, as SlurmUser or as we do, so servers on other machines are refused.

Test it with `pytest tests/unit/client`; `python -m benchmarks.wire` measures it.
"""
