"""For agents: a server of the Model Context Protocol over the user's own commands. Needs the extra `mcp`.

`command`   `spritz mcp`
`server`    the tools
`calling`   running a command, and what of its answer is passed on

A tool runs the command that the user would run: it sees what the user may see, does what the user may do, and is
refused in Slurm's words.

Source: docs/decisions/0192; https://modelcontextprotocol.io.
"""
