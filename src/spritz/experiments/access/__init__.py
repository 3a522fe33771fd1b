"""Which runs can be seen, beyond the index.

`rebuilding` makes the index again from the records
`others`     looks at runs of other users: USER/RUN
`sharing`    lets others see runs, by the modes of their directories
"""
