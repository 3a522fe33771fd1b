"""What users do with their runs afterwards.

`share`   who may see a run
"""
