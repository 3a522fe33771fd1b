"""sacctmgr's parts.

`arguments` reads what was typed, `settings` what may be set; `add`, `change` and `remove` make edits of the
book; `show` prints it; `commit` asks and sends.
"""
