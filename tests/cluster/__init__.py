"""The project's own Kubernetes for tests: real components, real containers, on this machine, without a registry."""
