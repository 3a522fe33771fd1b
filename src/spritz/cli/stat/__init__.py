"""What `sstat` does after its options are read: `ask` the controller for running steps and what they have used,
`fields` are its columns."""
