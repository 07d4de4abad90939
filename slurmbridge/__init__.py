"""slurmbridge: Slurm's commands and scheduling for Kubernetes and single machines."""

__version__ = "0.1.0"
