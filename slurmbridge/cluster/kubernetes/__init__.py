"""A Kubernetes cluster: its nodes, and gangs of pods."""
