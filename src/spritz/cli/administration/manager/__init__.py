"""sacctmgr's parts.

`arguments` parses the command line, `settings` the values that can be set. `add` and `change` make edits of the
accounting policy (`Book`: accounts, users, associations, QOS …), `show` prints it, and `commit` asks the user and sends
the edit to slurmdbd. One module per further verb or noun.
"""
