"""`sinfo` after its options are read.

Map
---
`groups`   nodes of a partition that look alike in the columns shown become one line
`listing`  options → columns, filters and order; asking and printing
`verbose`  the first lines of `sinfo -v`
"""
