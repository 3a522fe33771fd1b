"""What a Kubernetes API server must do, and the operator against one."""
