"""``scontrol show config``'s lines as data: label, how the value is written, and 25.11's default.

Styles: ``text`` (``(null)`` when not set), ``number``, a unit (``sec``, ``min``, ``usec``, ``percent``, ``nodes/min``),
``switch`` (yes/no), ``plugin`` (text, but ``(null)`` where it says none), ``level`` (a log level), ``user``
(``name(uid)``) and ``*``: the command knows (scontrol_config.py).
"""
from __future__ import annotations

_TABLE = """\
AccountingStorageBackupHost text
AccountingStorageEnforce *
AccountingStorageHost text localhost
AccountingStorageExternalHost text
AccountingStorageParameters text
AccountingStoragePort *
AccountingStorageTRES *
AccountingStorageType plugin
AccountingStoreFlags *
AcctGatherEnergyType plugin
AcctGatherFilesystemType plugin
AcctGatherInterconnectType plugin
AcctGatherNodeFreq sec 0
AcctGatherProfileType plugin
AllowSpecResourcesUsage switch no
AuthAltTypes text
AuthAltParameters text
AuthInfo text
AuthType text auth/munge
BatchStartTimeout sec 10
BcastExclude text /lib,/usr/lib,/lib64,/usr/lib64
BcastParameters text
BOOT_TIME *
BurstBufferType text
CertgenParameters text
CertgenType text
CertmgrParameters text
CertmgrType text
CliFilterParameters text
CliFilterPlugins plugin
ClusterName *
CommunicationParameters text
CompleteWait sec 0
CpuFreqDef text Unknown
CpuFreqGovernors text OnDemand,Performance,UserSpace
CredType text cred/munge
DataParserParameters text
DebugFlags text
DefMem *
DependencyParameters text
DisableRootJobs switch no
EioTimeout number 60
EnforcePartLimits *
Epilog[] *
EpilogMsgTime usec 2000
EpilogSlurmctld[] *
FairShareDampeningFactor number 1
FederationParameters text
FirstJobId number 1
GresTypes text
GpuFreqDef text
GroupUpdateForce number 1
GroupUpdateTime sec 600
HASH_VAL *
HashPlugin text hash/k12
HealthCheckInterval sec 0
HealthCheckNodeState text ANY
HealthCheckProgram text
HttpParserType text http_parser/libhttp_parser
InactiveLimit sec 0
InteractiveStepOptions text --interactive --preserve-env --pty $SHELL
JobAcctGatherFrequency text 30
JobAcctGatherType plugin
JobAcctGatherParams text
JobCompHost text localhost
JobCompLoc text
JobCompParams text
JobCompPass *
JobCompPort number 0
JobCompType plugin
JobCompUser text root
JobDefaults *
JobFileAppend number 0
JobRequeue number 1
JobSubmitPlugins text
KillOnBadExit number 0
KillWait sec 30
LaunchParameters text
Licenses text
LogTimeFormat text iso8601_ms
MailDomain text
MailProg text /bin/mail
MaxArraySize number 1001
MaxBatchRequeue number 5
MaxDBDMsgs *
MaxJobCount *
MaxJobId number 67043328
MaxMem *
MaxNodeCount *
MaxStepCount number 40000
MaxTasksPerNode number 512
MCSPlugin plugin
MCSParameters text
MessageTimeout sec 10
MetricsType text
MinJobAge *
MpiDefault plugin
MpiParams text
NamespaceType *
NEXT_JOB_ID *
NodeFeaturesPlugins text
OverTimeLimit *
PluginDir text /usr/lib/slurm
PlugStackConfig text
PreemptMode *
PreemptParameters text
PreemptType plugin
PreemptExemptTime *
PrEpParameters text
PrEpPlugins text prep/script
PriorityParameters text
PrioritySiteFactorParameters text
PrioritySiteFactorPlugin plugin
Priority *
PrivateData *
ProctrackType text proctrack/cgroup
Prolog[] *
PrologEpilogTimeout *
PrologSlurmctld[] *
PrologFlags *
PropagatePrioProcess number 0
PropagateResourceLimits *
PropagateResourceLimitsExcept text
RebootProgram text
ReconfigFlags text
RequeueExit text
RequeueExitHold text
ResumeFailProgram text
ResumeProgram text
ResumeRate nodes/min 300
ResumeTimeout sec 60
ResvEpilog text
ResvOverRun min 0
ResvProlog text
ReturnToService number 0
SchedulerParameters text
SchedulerTimeSlice sec 30
SchedulerType text sched/backfill
ScronParameters text
SelectType text select/cons_tres
SelectTypeParameters *
SlurmUser user root
SlurmctldAddr text
SlurmctldDebug level info
SlurmctldHost[] *
SlurmctldLogFile text
SlurmctldPort text 6817
SlurmctldSyslogDebug level (null)
SlurmctldPrimaryOffProg text
SlurmctldPrimaryOnProg text
SlurmctldTimeout sec 120
SlurmctldParameters text
SlurmdDebug level info
SlurmdLogFile text
SlurmdParameters text
SlurmdPidFile text /var/run/slurmd.pid
SlurmdPort number 6818
SlurmdSpoolDir text /var/spool/slurmd
SlurmdSyslogDebug level (null)
SlurmdTimeout sec 300
SlurmdUser user root
SlurmSchedLogFile text
SlurmSchedLogLevel number 0
SlurmctldPidFile text /var/run/slurmctld.pid
SLURM_CONF *
SLURM_VERSION *
SrunEpilog text
SrunPortRange text 0-0
SrunProlog text
StateSaveLocation text /var/spool
SuspendExcNodes text
SuspendExcParts text
SuspendExcStates text
SuspendProgram text
SuspendRate nodes/min 60
SuspendTime *
SuspendTimeout *
SwitchParameters text
SwitchType plugin
TaskEpilog text
TaskPlugin plugin
TaskPluginParam *
TaskProlog text
TCPTimeout sec 2
TLSParameters text
TLSType text tls/none
TmpFS text /tmp
TopologyParam text
TopologyPlugin text topology/flat
TrackWCKey *
TreeWidth number 16
UsePam switch no
UnkillableStepProgram text
UnkillableStepTimeout sec 60
UrlParserType text url_parser/libhttp_parser
VSizeFactor percent 0
WaitTime sec 0
X11Parameters text
"""
SHOWN: tuple[tuple[str, str, str], ...] = tuple(
    (parts[0], parts[1], parts[2] if len(parts) > 2 else "(null)")
    for parts in (line.split(" ", 2) for line in _TABLE.splitlines()))
"""(label, style, default) in the order of the output."""
