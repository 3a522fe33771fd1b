"""The parts of sshare: `listing` its columns and the tree, `record` the same as JSON."""
