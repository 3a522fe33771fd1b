"""The standard streams of tasks: pipes to clients, and files of users.

`pumps`   output by lines, input by credit
`files`   standard streams that are files: opened once per path, as the user
`outlet`  files of users that are written without waiting for them
`labels`  lines of output with their task (`srun --label`)
"""
