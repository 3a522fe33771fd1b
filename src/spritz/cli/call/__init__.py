"""What a call of any command needs: its surroundings, its options, and the way out.

Map
---
`context`    the surroundings of a call: environment, directory, streams, clock
`entry`      from a process to a context and back: errors, broken pipes, exit codes
`options`    the option tables (done or refused, from which the compatibility pages are made) and their parser
`clusters`   -M, --clusters: the call is repeated for each
`repeat`     -i SECONDS
`prompt`     commands from standard input
`terminal`   whether the caller's terminal may be read now
`already_reported`   an error whose message has been printed
"""
