"""Who may use how much: the book of accounts, users, associations and QOS, edited by `sacctmgr`.

`tables` its tables; `book` reads and writes them, an edit in one transaction; `rules` what must hold, and who may
change what; `requests` the requests, and telling the controllers.
"""
