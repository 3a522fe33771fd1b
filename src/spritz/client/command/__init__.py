"""A command's connections (blocking): no asyncio, no logging and no `socket` is imported.

`sync`               `connect_controller`, `connect_address`, `Connection` (`call`, `call_exact`, `call_raw`, `stream`;
                     `send_many`, `receive`)
`submission_retry`   submissions whose answer was lost
`blocking_tls`       the same by TLS, to a controller on another machine
"""
