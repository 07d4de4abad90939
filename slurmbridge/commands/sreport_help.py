"""What ``sreport --help`` prints."""
from __future__ import annotations

HELP = """\
sreport [OPTION...] [REPORT [CONDITION...]]
    Reports on usage, from the ledger's roll-ups by hour, day and month. Without a report, commands are read from
    standard input.

  -a, --all_clusters   of all clusters (there is one)     -M, --cluster=names  of these clusters
  -n, --noheader       no header                          -p, --parsable       fields ended by '|'
  -P, --parsable2      fields separated by '|'            -Q, --quiet          print less
  -s name|time         how users are sorted               -T, --tres=list      these TRES, or ALL
  -t unit              Seconds, Minutes (default), Hours, Percent, SecPer, MinPer, HourPer
  -v, --verbose        print more                         -V, --version        print the version

  Reports                                      Conditions
    cluster Utilization                        Clusters=
    cluster AccountUtilizationByUser           Accounts= Users= QosLevel= Tree
    cluster AccountUtilizationByQOS            Accounts= QosLevel=
    cluster UserUtilizationByAccount           Accounts= Users=
    cluster UserUtilizationByWckey             Users= WCKeys=
    cluster WCKeyUtilizationByUser             Users= WCKeys=
    job     SizesByAccount                     Accounts= AcctAsParent FlatView GID= Grouping=50,100|individual Jobs=
            SizesByAccountAndWckey             Nodes= Partitions= PrintJobCount Users= Wckeys=
            SizesByWckey
    reservation Utilization                    Names= Ids= Nodes=
    user    Top                                Accounts= Users= Group TopCount=10

  Every report takes Start= and End= (by default yesterday; whole hours) and Format=FIELD[%WIDTH],...
    cluster      Accounts, Allocated, Cluster, Count, Down, Energy, Idle, Login, Overcommitted, Planned, PlannedDown,
                 Proper, QOS, QOSID, Reported, TresName, Used, WCKey
    job          Account, Cluster, Wckey
    reservation  Allocated, Associations, Cluster, Count, End, Flags, Idle, Name, Nodes, ReservationId, Start,
                 TotalTime, TresName, TresTime
    user         Accounts, Cluster, Energy, Login, Partition, Proper, TresName, Used

  Times are HH:MM[:SS] [AM|PM], MMDD[YY], MM/DD[/YY][-HH:MM[:SS]], YYYY-MM-DD[THH:MM[:SS]] or now[+|-COUNT[UNIT]].

  Commands besides reports: exit, help, nonparsable, parsable, parsable2, quiet, quit, sort, time, verbose, version, !!
"""
