"""sacctmgr's parts.

`words` reads what was typed, `settings` what may be set; `add`, `change` and `remove` make edits of the book; `columns`
and `show` print it; `commit` asks and sends.
"""
