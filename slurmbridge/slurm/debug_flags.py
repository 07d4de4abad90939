"""The words of DebugFlags (slurm.conf(5)), in the order in which they are shown."""
from __future__ import annotations

FLAGS = tuple("""
Accrue Agent AuditRPCs AuditTLS Backfill BackfillMap BurstBuffer Cgroup ConMgr CPU_Bind CpuFrequency Data DBD_Agent
DB_Archive DB_Assoc DB_Event DB_Job DB_QOS DB_Query DB_Reservation DB_Resource DB_Step DB_TRES DB_Usage DB_WCKey
Dependency Elasticsearch Energy Federation Gang GLOB_SILENCE Gres Hetjob Interconnect JobAccountGather JobComp
JobContainer License Metrics MPI Namespace Network NetworkRaw NodeFeatures NO_CONF_HASH Power Priority Profile Protocol
Reservation Route Sack Script SelectType Steps Switch Task TLS TraceJobs Triggers WorkQueue""".split())
