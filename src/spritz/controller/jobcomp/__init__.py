"""Job completion plugins (JobCompType): send ended jobs to other programs.

`listener` follows the events, and makes an `ended` of each end of a job. `filetxt` writes lines to a file, `script`
runs a program, `lua` calls a Lua script, `web` posts JSON to an HTTP server (jobcomp/elasticsearch) and `kafka` sends
it to a topic; the last two use a `spool` on disk; all but `filetxt` take ends from a bounded `queue`. `record_fields`
are values that several of them write.

A job is sent only after its event's commit. The accounting database is the complete record; this is for other programs.
"""
