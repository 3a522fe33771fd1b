"""Planted faults: small wrong changes of production code, each of which the simulation of the daemons must find.

`entry` is the type, `faults` lists all of them (by area: `journal`, `controller`, `jobs`, `node`, `accounting`,
`scheduling`, `client`), and `plant` applies one and runs the simulator on it. When code moves,
`tests/simulation/test_planted.py` says at once which fault must be adapted.

The rules are those of `spritz_testing.daemons`:

1. What was acknowledged is durable, and exists once.
2. Requests take effect in an order that agrees with their acknowledgements.
3. Nothing starts twice, too early or beyond a limit; nothing has two owners; exit codes are those that nodes saw.
4. One controller acts at a time, and its state, a standby's and the journal's are the same.
5. Due deadlines move something; orders, queues and turns of the loop are bounded.
6. Everything comes to its end after the last fault, and accounting agrees with what happened.
7. Planned starts that users were told are kept.
"""
