"""scontrol's help."""
from __future__ import annotations

HELP = """\
scontrol [<OPTION>] <COMMAND>
    Valid <OPTION> values are:
     -a, --all                every partition, also hidden ones
     -d, --details            more about jobs and nodes
     --federation, --local, --sibling   accepted; there is one cluster
     -F, --future             also nodes in state FUTURE
     -h, --help               this text
     --hide                   without hidden partitions
     --json, --yaml           not offered yet
     -M, --cluster=NAME       this cluster's name
     -o, --oneliner           a record a line
     -Q, --quiet              errors only by the exit code
     -u, --uid=USER           accepted from administrators, no effect
     -v, --verbose            more words
     -V, --version            the version

    Valid <COMMAND> values are:
     completing               jobs that are ending, and their nodes
     create PartitionName=…   a new partition
     delete PartitionName=…   a partition
     errnumstr <NUMBER>       the text of one of Slurm's error numbers
     hold, uhold <JOBS>       keep pending jobs from starting
     ping                     whether the controller is up
     reconfigure              read the configuration again
     release <JOBS>           the opposite of hold
     requeue, requeuehold <JOBS>   put batch jobs back into the queue
     resume <JOBS>            go on with suspended jobs
     show <ENTITY> [<ID>]     records, all without an ID
     shutdown                 stop the controller
     suspend <JOBS>           stop running jobs for a while
     update <SPECIFICATIONS>  change a job, node or partition
     version                  the version
     wait_job <JOB>           wait until a job's nodes are ready
     write batch_script <JOB> [<FILE>|-]   a job's script

  <ENTITY> may be "aliases", "assoc_mgr", "config", "hostlist", "hostlistsorted", "hostnames",
       "job", "licenses", "node", "partition", "reservation", "step", or "topology"

  <JOBS> are job ids, 12_3 or 12_[1-4] for tasks of an array, 12+1 for a component of a
       heterogeneous job, separated by commas or blanks

  Commands, entities and keys may be abbreviated and are read in any case.

"""
