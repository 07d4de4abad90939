"""sinfo's --help, --usage, and the options that -v prints before the report."""
from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmbridge.commands.sinfo import Options

USAGE = """\
Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes]
             [-S fields] [-o format] [-O Format] [--federation] [--local]
"""
HELP = """\
Usage: sinfo [OPTIONS]
  -a, --all                  every partition, also hidden ones and those closed to you
  -d, --dead                 only nodes that do not respond
  -e, --exact                one row only for nodes of the very same size
      --federation           accepted; there is one cluster
  -F, --future               also nodes in state FUTURE
  -h, --noheader             no header
      --hide                 without hidden partitions (the default)
  -i, --iterate=seconds      again and again
      --json, --yaml         not offered yet
      --local                accepted; there is one cluster
  -l, --long                 more columns
  -M, --clusters=names       this cluster's name, or all
  -n, --nodes=NODES          only these nodes
      --noconvert            numbers as they are, without K, M, G
  -N, --Node                 a row a node and partition
  -o, --format=format        letters, see --helpformat
  -O, --Format=format        names, see --helpFormat
  -p, --partition=PARTITION  only these partitions
  -r, --responding           only nodes that respond
  -R, --list-reasons         why nodes are down, drained or failing
  -s, --summarize            a row a partition
  -S, --sort=fields          letters to sort by
  -t, --states=node_state    only nodes in these states, see --helpstate
  -T, --reservation          reservations
  -v, --verbose              tell the options first
  -V, --version              the version

Help options:
  --help                     this text
  --helpformat               the letters of --format
  --helpFormat               the names of --Format
  --helpstate                the words of --states
  --usage                    one line
"""
_BAR = "-" * 29 + "\n"
_FLAG_LINES = (
    ("alloc_mem_flag  ", "AllocMem"), ("avail_flag      ", "Available"), ("comment_flag    ", "Comment"),
    ("cpus_flag       ", "CPUs CPUsState"), ("default_time_flag ", "DefaultTime"), ("disk_flag       ", "Disk"),
    ("extra_flag      ", "Extra"), ("features_flag   ", "Features"), ("features_flag_act ", "features_act"),
    ("groups_flag     ", "Groups"), ("gres_flag       ", "Gres"), ("gres_used_flag  ", "GresUsed"),
    ("job_size_flag   ", "Size"), ("max_time_flag   ", "Time"), ("memory_flag     ", "Memory"),
    ("partition_flag  ", "Partition PartitionName"), ("port_flag       ", "Port"),
    ("priority_job_factor_flag   ", "PriorityJobFactor"), ("priority_tier_flag   ", "PriorityTier"),
    ("reason_flag     ", "Reason"), ("reason_timestamp_flag ", "TimeStamp"), ("reason_user_flag ", "User UserLong"),
    ("reservation_flag ", ""), ("resv_name_flag   ", "Reservation"), ("root_flag       ", "Root"),
    ("oversubscribe_flag      ", "Share"), ("state_flag      ", "StateCompact StateLong"),
    ("statecomplete_flag ", "StateComplete"), ("weight_flag     ", "Weight"))


def options_text(found: Options, fields: Collection[str]) -> str:
    """What -v prints: every option and which fields are shown."""
    def yes(value: object) -> str:
        return "true" if value else "false"

    filtering = found.dead or found.nodes or found.partition_text or found.responding or found.states is not None
    lines = [
        f"dead        = {yes(found.dead)}", f"exact       = {int(found.exact)}", f"filtering   = {yes(filtering)}",
        f"format      = {found.format}", f"iterate     = {found.iterate_s}", f"long        = {yes(found.long)}",
        f"no_header   = {yes(found.no_header)}", f"node_field  = {yes('NodeList' in found.sizes_follow_data)}",
        f"node_format = {yes(found.by_node)}", f"nodes       = {found.nodes_text or 'n/a'}",
        f"part_field  = {yes('Partition' in found.sizes_follow_data)}",
        f"partition   = {found.partition_text or 'n/a'}", f"responding  = {yes(found.responding)}",
        f"states      = {found.states_text or '(null)'}",
        f"sort        = {'(null)' if found.sort is None else found.sort}",
        f"summarize   = {yes(found.summarize)}", f"verbose     = {found.verbose}"]
    flags = [f"all_flag        = {yes(found.all)}"]
    for label, names in _FLAG_LINES:
        on = found.reservations if label.startswith("reservation_flag") else any(n in fields for n in names.split())
        flags.append(f"{label}={'' if label.startswith('default_time') else ' '}{yes(on)}")
    return _BAR + "\n".join(lines) + "\n" + _BAR + "\n".join(flags) + "\n" + _BAR + "\n"
