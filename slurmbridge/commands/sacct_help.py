"""What ``sacct --help`` prints."""
from __future__ import annotations

HELP = """\
sacct [<OPTION>]
     Jobs and steps that the accounting ledger knows. Valid <OPTION> values are:

   which jobs (comma separated lists are alternatives; several options must all hold)
     -a, --allusers              of all users (what root gets anyway)
     -u, --uid, --user=list      of these users
     -g, --gid, --group=list     of these groups
     -A, --accounts=list         of these accounts
     -x, --associations=list     of these association ids
     -j, --jobs=list             job[.step], array_task, hetjob+component
         --whole-hetjob[=yes|no] all components of the heterogeneous jobs named with -j, or those named alone
         --name=list             with these names
     -r, --partition=list        in these partitions
     -q, --qos=list              under these QOS
     -W, --wckeys=list           with these WCKeys
     -C, --constraints=list      with all of these features
     -F, --flags=list            SchedSubmit, SchedMain, SchedBackfill, StartReceived
     -R, --reason=list           that waited for one of these reasons (see --helpreason)
     -N, --nodelist=hosts        that ran on one of these nodes
     -i, --nnodes=min[-max]      by number of nodes
     -I, --ncpus=min[-max]       by number of CPUs
     -k, --timelimit-min=time    with this time limit; with -K from this limit on
     -K, --timelimit-max=time    up to this limit (needs -k)
     -s, --state=list            that were pending or running in the window, or ended so in it (see --helpstate)
     -S, --starttime=time        window: default 00:00 of today, with -s now, with -j the beginning
     -E, --endtime=time          window: default now
     -D, --duplicates            every run of a requeued job
     -M, --clusters=list         of these clusters

   what is shown
     -X, --allocations           jobs without their steps
     -o, --format=list           fields, each with %width perhaps (see --helpformat)
     -b, --brief                 JobID, State and ExitCode
     -l, --long                  many fields
         --array                 one line for every pending array task
     -T, --truncate              times cut to the window
     -n, --noheader              no heading
     -p, --parsable              fields end with a delimiter
     -P, --parsable2             fields have a delimiter between them
         --delimiter=text        instead of |
         --units=K|M|G|T|P       one unit for all sizes
         --noconvert             sizes in the units they are stored in
         --expand-patterns       file names with their % patterns filled in
         --use-local-uid         uids of the local user names
     -B, --batch-script          the batch script of the jobs named with -j
         --env-vars              the environment of the jobs named with -j

   about
     -e, --helpformat            names of all fields
         --helpreason            names of all reasons
         --helpstate             names of all states
     -h, --help                  this text
         --usage                 one line
     -v, --verbose               the window that was used
     -V, --version               version

     Times: HH:MM[:SS] [AM|PM], MMDD[YY], MM/DD[/YY][-HH:MM[:SS]], MM.DD[.YY], YYYY-MM-DD[THH:MM[:SS]],
            now[+|-count[seconds|minutes|hours|days|weeks]]
"""
