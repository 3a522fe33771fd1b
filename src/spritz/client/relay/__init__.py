"""Users' connections and steps' streams between machines.

`relay`              a machine's sockets of local users, forwarded to the controller
`hub`                the controller's side: it joins the streams of two machines
`peers`              directly from node to node
`mux`                many streams on one connection, with credit; `resumable_stream`: one that survives its connection
"""
