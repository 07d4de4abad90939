"""Node signals to a verdict per node: the room where the Kubernetes engine's node conditions will be judged."""
