"""A daemon's connections (asyncio): servers, their limits, and clients that stay connected.

`channel`     `Channel`, one connection: `call`, `stream`, `notify`, `on_close`; both sides may send requests
`handling`    handlers: their `Call` and their result
`server`      `Server(table, role=, log=)`: `listen_unix`, `listen_tcp`, `listen_socket`, `stop_listening`, `channels`
`admission`   limits of each peer: connections, memory, time (`Limits`); `quota` keeps a server's accounts
`turns`       shares the time of the daemon's loop among users; places for work outside of it
`statistics`, `log_throttle`   requests by kind and user; one log line for each peer and minute
`token_requests`   makes a connection the user's who has a token (auth/jwt)
`aio`         `connect(addresses, …) -> Channel`; `PersistentChannel`, which reconnects
`leader`      finds the controller or slurmdbd that leads, for daemons that stay connected to it
"""
