"""Every key of 25.11's slurm.conf as data: its kind of value, whether slurmbridge uses it, and if not what that means.

``slurmbridge lint slurm.conf`` and the reader work from this table; ``scontrol show config``'s table is
``conf_shown.py``. (slurm.conf(5) of 25.11.)
"""
from __future__ import annotations

from dataclasses import dataclass

MEANINGS = {
    "auth": "callers are known by their socket (or bearer token), not by munge or another plugin",
    "comm": "there is no Slurm network protocol between daemons to tune",
    "control": "the controller is this process; its state and its socket are told to `slurmbridge up`",
    "dbd": "slurmbridge keeps its own ledger and contacts no slurmdbd",
    "daemon": "there are no slurmd daemons; nodes belong to the engine",
    "log": "slurmbridge writes its own log, see `slurmbridge up --help`",
    "energy": "energy, file system and interconnect counters are not gathered",
    "gather": "usage is always gathered by the step daemon, from /proc or the cgroup",
    "prolog": "no prolog or epilog program is started",
    "power": "nodes are not powered up or down; use the cluster's autoscaler",
    "jobcomp": "no job completion plugin; finished jobs are in the ledger (sacct)",
    "filter": "no site plugin is loaded",
    "launch": "processes are started by the step daemon, not by slurmstepd; only use_interactive_step is looked at",
    "track": "the step daemon tracks and binds processes by its own means",
    "mpi": "srun serves none, pmi2 and, where libpmix.so.2 is installed, pmix; it refuses others, also as this default",
    "cpufreq": "clock rates are not changed",
    "network": "no switch or high-speed network plugin",
    "fed": "one cluster; no federation",
    "mcs": "jobs carry no security label",
    "feature": "features come from slurm.conf and from the engine's node labels",
    "exclusivetopo": "no job has all nodes of its switches alone",
    "topology": "switches come from topology.conf, and all partitions have the same",
    "burst": "there are no burst buffers",
    "reservation": "there are no reservation programs",
    "groups": "group membership is asked of the system at each submission",
    "tls": "encryption is set on the server (`slurmbridge up`), not here",
    "cron": "there is no scrontab",
    "bcast": "sbcast and srun --bcast copy as their own options say",
    "container": "containers belong to the engine (images), not to a namespace plugin",
    "private": "its words jobs (squeue, scancel) and usage (sshare) hide what is others'; all else is shown",
    "gang": "no time slicing: jobs do not share CPUs in turns",
    "mail": "no mail is sent",
    "scripts": "no program of the site is started for this",
    "site": "the site factor is what scontrol sets, there is no plugin",
    "launchtime": "the engine's own time limit for starting a job holds",
    "inactive": "an allocation ends when its salloc or srun is gone, at once",
    "near": "any device goes with any core of its node",
    "preempt": "victims are chosen as with no PreemptParameters",
    "vsize": "virtual memory is not limited",
    "service": "the engine says which node is healthy; nodes do not register by themselves",
    "interactive": "salloc starts the user's shell beside it",
    "removed": "25.11 no longer has this key and ignores it",
    "fatal": "25.11 refuses to start with this key: remove it",
}


@dataclass(frozen=True, slots=True)
class ConfKey:
    """``kind``: text, u16, u32, u64, bool, or pairs (a line with more pairs). ``use``: "" = used, else why not."""

    name: str
    kind: str
    use: str

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self.use, self.use)


def _table(text: str) -> dict[str, ConfKey]:
    keys = (ConfKey(*[*line.split(), ""][:3]) for line in text.split("\n") if line)
    return {key.name.lower(): key for key in keys}


KEYS = _table("""
AccountingStorageBackupHost text dbd
AccountingStorageEnforce text
AccountingStorageExternalHost text dbd
AccountingStorageHost text dbd
AccountingStorageParameters text dbd
AccountingStoragePass text dbd
AccountingStoragePort u16 dbd
AccountingStorageTRES text
AccountingStorageType text dbd
AccountingStorageUser text removed
AccountingStoreFlags text
AccountingStoreJobComment bool fatal
AcctGatherEnergyType text energy
AcctGatherFilesystemType text energy
AcctGatherInfinibandType text energy
AcctGatherInterconnectType text energy
AcctGatherNodeFreq u16 energy
AcctGatherProfileType text energy
AllowSpecResourcesUsage bool
AuthAltParameters text auth
AuthAltTypes text auth
AuthInfo text auth
AuthType text auth
BackupAddr text control
BackupController text control
BatchStartTimeout u16 launchtime
BcastExclude text bcast
BcastParameters text bcast
BurstBufferParameters text burst
BurstBufferType text burst
CertgenParameters text tls
CertgenType text tls
CertmgrParameters text tls
CertmgrType text tls
CliFilterParameters text filter
CliFilterPlugins text filter
ClusterName text
CommunicationParameters text comm
CompleteWait u16
ControlAddr text control
ControlMachine text
CoreSpecPlugin text removed
CpuFreqDef text cpufreq
CpuFreqGovernors text cpufreq
CredType text auth
CryptoType text auth
DataParserParameters text comm
DebugFlags text log
DefCPUPerGPU u64
DefMemPerCPU u64
DefMemPerGPU u64
DefMemPerNode u64
DependencyParameters text
DisableRootJobs bool
DownNodes pairs
EioTimeout u16 comm
EnforcePartLimits text
Epilog text prolog
EpilogMsgTime u32 comm
EpilogSlurmctld text prolog
EpilogTimeout u16 prolog
ExtSensorsFreq u16 removed
ExtSensorsType text removed
FairShareDampeningFactor u16
FastSchedule u16 fatal
FederationParameters text fed
FirstJobId u32
GetEnvTimeout u16 removed
GpuFreqDef text cpufreq
GresTypes text
GroupUpdateForce u16 groups
GroupUpdateTime u16 groups
HashPlugin text comm
HealthCheckInterval u16 scripts
HealthCheckNodeState text scripts
HealthCheckProgram text scripts
HttpParserType text comm
InactiveLimit u16 inactive
InteractiveStepOptions text interactive
JobAcctGatherFrequency text
JobAcctGatherParams text gather
JobAcctGatherType text gather
JobCompHost text jobcomp
JobCompLoc text jobcomp
JobCompParams text jobcomp
JobCompPass text jobcomp
JobCompPassScript text jobcomp
JobCompPort u32 jobcomp
JobCompType text jobcomp
JobCompUser text jobcomp
JobContainerType text container
JobCredentialPrivateKey text removed
JobCredentialPublicCertificate text removed
JobFileAppend u16
JobRequeue u16
JobSubmitPlugins text filter
KeepAliveTime u32 comm
KillOnBadExit u16
KillWait u16
LaunchParameters text launch
LaunchType text launch
Licenses text
LogTimeFormat text log
MCSParameters text mcs
MCSPlugin text mcs
MailDomain text mail
MailProg text mail
MaxArraySize u32
MaxBatchRequeue u32
MaxDBDMsgs u32 dbd
MaxJobCount u32
MaxJobId u32
MaxMemPerCPU u64
MaxMemPerNode u64
MaxNodeCount u32 daemon
MaxStepCount u32
MaxTasksPerNode u16
MessageTimeout u16 comm
MetricsType text log
MinJobAge u32
MpiDefault text mpi
MpiParams text
NamespaceType text container
NodeFeaturesPlugins text feature
NodeName pairs
NodeSet pairs
OverTimeLimit u16
PartitionName pairs
PlugStackConfig text filter
PluginDir text filter
PowerParameters text removed
PowerPlugin text removed
PrEpParameters text prolog
PrEpPlugins text prolog
PreemptExemptTime text
PreemptMode text
PreemptParameters text preempt
PreemptType text
PriorityCalcPeriod text
PriorityDecayHalfLife text
PriorityFavorSmall bool
PriorityFlags text
PriorityMaxAge text
PriorityParameters text site
PrioritySiteFactorParameters text site
PrioritySiteFactorPlugin text site
PriorityType text
PriorityUsageResetPeriod text
PriorityWeightAge u32
PriorityWeightAssoc u32
PriorityWeightFairshare u32
PriorityWeightJobSize u32
PriorityWeightPartition u32
PriorityWeightQOS u32
PriorityWeightTRES text
PrivateData text private
ProctrackType text track
Prolog text prolog
PrologEpilogTimeout u16 prolog
PrologFlags text prolog
PrologSlurmctld text prolog
PrologTimeout u16 prolog
PropagatePrioProcess u16 launch
PropagateResourceLimits text
PropagateResourceLimitsExcept text
RebootProgram text power
ReconfigFlags text control
RequeueExit text
RequeueExitHold text
ResumeFailProgram text power
ResumeProgram text power
ResumeRate u16 power
ResumeTimeout u16 power
ResvEpilog text reservation
ResvOverRun u16 reservation
ResvProlog text reservation
ReturnToService u16 service
RoutePlugin text comm
SallocDefaultCommand text fatal
SbcastParameters text bcast
SchedulerParameters text
SchedulerTimeSlice u16 gang
SchedulerType text
ScronParameters text cron
SelectType text
SelectTypeParameters text
SlurmSchedLogFile text log
SlurmSchedLogLevel u16 log
SlurmUser text
SlurmctldAddr text control
SlurmctldDebug text log
SlurmctldHost pairs
SlurmctldLogFile text log
SlurmctldParameters text control
SlurmctldPidFile text control
SlurmctldPort text control
SlurmctldPrimaryOffProg text scripts
SlurmctldPrimaryOnProg text scripts
SlurmctldSyslogDebug text log
SlurmctldTimeout u16 control
SlurmdDebug text log
SlurmdLogFile text log
SlurmdParameters text daemon
SlurmdPidFile text daemon
SlurmdPort u32 daemon
SlurmdSpoolDir text daemon
SlurmdSyslogDebug text log
SlurmdTimeout u16
SlurmdUser text daemon
SrunEpilog text prolog
SrunPortRange text comm
SrunProlog text prolog
StateSaveLocation text control
SuspendExcNodes text power
SuspendExcParts text power
SuspendExcStates text power
SuspendProgram text power
SuspendRate u16 power
SuspendTime text power
SuspendTimeout u16 power
SwitchParameters text network
SwitchType text network
TCPTimeout u16 comm
TLSParameters text tls
TLSType text tls
TaskEpilog text prolog
TaskPlugin text
TaskPluginParam text track
TaskProlog text prolog
TmpFS text daemon
TopologyParam text
TopologyPlugin text
TrackWCKey bool
TreeWidth u16 comm
UnkillableStepProgram text scripts
UnkillableStepTimeout u16 track
UrlParserType text comm
UsePAM bool launch
VSizeFactor u16 vsize
WaitTime u16
X11Parameters text launch
""")
"""Lower-case key -> ConfKey."""

NODE_KEYS = _table("""
BcastAddr text comm
Boards u16
CPUSpecList text
CPUs u16
CoreSpecCount u16
CoresPerSocket u16
CpuBind text track
Feature text
Features text
Gres text
GresConf text daemon
MemSpecLimit u64
NodeAddr text
NodeHostname text
NodeName text
Parameters text daemon
Port text
Procs u16
RealMemory u64
Reason text
RestrictedCoresPerGPU u16 daemon
Sockets u16
SocketsPerBoard u16
State text
TRESWeights text topology
ThreadsPerCore u16
TmpDisk u32
Topology text topology
Weight u32
""")

PARTITION_KEYS = _table("""
AllocNodes text
AllowAccounts text
AllowGroups text
AllowQos text
Alternate text
CpuBind text
DefCPUPerGPU u64
DefMemPerCPU u64
DefMemPerGPU u64
DefMemPerNode u64
Default bool
DefaultTime text
DenyAccounts text
DenyQos text
DisableRootJobs bool
ExclusiveTopo bool exclusivetopo
ExclusiveUser bool
GraceTime u32
Hidden bool
LLN bool
MaxCPUsPerNode u32
MaxCPUsPerSocket u32
MaxMemPerCPU u64
MaxMemPerNode u64
MaxNodes u32
MaxTime text
MinNodes u32
Nodes text
OverSubscribe text
OverTimeLimit text
PartitionName text
PowerDownOnIdle bool power
PreemptMode text
Priority u16
PriorityJobFactor u16
PriorityTier u16
QOS text
ReqResv bool
ResumeTimeout u16 power
RootOnly bool
SelectTypeParameters text
Shared text
State text
SuspendTime text power
SuspendTimeout u16 power
TRESBillingWeights text
Topology text topology
""")

DOWN_NODE_KEYS = _table("DownNodes text\nReason text\nState text")
NODE_SET_KEYS = _table("Feature text\nNodeSet text\nNodes text")
GRES_LINE = "gres.conf"
"""What a line of gres.conf is called, where keys of slurm.conf's lines have NodeName and its like."""
GRES_KEYS = _table("""
AutoDetect text
Cores text near
CPUs text near
Count text
File text
Files text
Flags text
Link text near
Links text near
MultipleFiles text
Name text
NodeName text
Type text
""")
