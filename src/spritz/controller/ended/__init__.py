"""What is told of jobs that have ended, as JobCompType says: `listen` follows the events, `filetxt` writes a line to a
file, `script` runs a program, `web` posts JSON to an HTTP server (jobcomp/elasticsearch) by way of a `spool` on disk.

All of it comes after the event's commit. The accounting database is the record; this is for other programs.
"""
