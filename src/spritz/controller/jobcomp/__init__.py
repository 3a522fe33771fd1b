"""What is told of jobs that have ended, as JobCompType says: `listen` follows the events, `filetxt` writes a line to a
file, `script` runs a program, `lua` calls a Lua script, `web` posts JSON to an HTTP server (jobcomp/elasticsearch) and
`kafka` sends it to a topic, both by way of a `spool` on disk.

All of it comes after the event's commit. The accounting database is the record; this is for other programs.
"""
