"""Scheduler plugins: each turns an allocation into bound pods. Installed as ``slurmbridge_schedulers``."""
