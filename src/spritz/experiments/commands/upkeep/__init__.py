"""What users do with their runs afterwards.

`edit`    tags, notes and names
`share`   who may see a run
`space`   what runs take, and what frees it
"""
