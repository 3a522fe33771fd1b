"""Input and output of a step at the client.

`redirection` -i, -o, -e: the files that the client opens, and those that supervisors open
`output`      labels and destinations of output
`input`       standard input, with flow control by credit
`terminal`    --pty: raw terminal and its size
"""
