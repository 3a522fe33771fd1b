"""`spritz mcp`: the cluster for agents, by the Model Context Protocol.

    command     options; standard input and output, or HTTP with a token
    server      the tools, their annotations, and how a refusal is told
    reading     tools that only look
    acting      tools that change something, offered with --allow-actions alone
    asking      commands run as the user, checked arguments, bounded answers

`server` and `command` alone import the package `mcp`.
"""
