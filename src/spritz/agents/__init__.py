"""`spritz mcp`: the cluster for agents, by the Model Context Protocol.

    command     options; standard input and output, or HTTP with a token
    server       the tools, their annotations, and how refusals reach the agent
    read_tools   tools that only read
    write_tools  tools that change the cluster, offered only with --allow-actions
    calls        commands run as the user, checked arguments, bounded answers

Only `server` and `command` import the package `mcp`.
"""
