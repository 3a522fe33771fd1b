"""What a Kubernetes API server must do for the operator: one suite for the server for tests and for real ones.

It runs against the server for tests always, and against the cluster that $KUBECONFIG names where it is set:

    KUBECONFIG=admin.conf pytest tests/kubernetes/contract

The user must be the cluster's administrator. Each test works in a namespace of its own, which it deletes; definitions
and priority classes have names that no other has. Nothing here needs a node or a scheduler. Tests of what the
controller manager does are skipped where none runs; tests of webhooks need an API server that reaches this machine: at
the name $SPRITZ_CONTRACT_HOST, or at localhost where the server is at a loopback address.

Source: the Kubernetes API reference and "API concepts", "Server-Side Apply", "Extending the API" of its documentation.
"""
