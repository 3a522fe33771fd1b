"""The identity of a peer.

`membership`      the keys of a cluster that spans machines
`munged`, `tokens`   who a caller is: auth/munge, auth/jwt (`channel.token_requests` answers requests with tokens)
`same_machine`    `refuse_remote(keys and hosts)`: an error for a configured host that is another machine
"""
