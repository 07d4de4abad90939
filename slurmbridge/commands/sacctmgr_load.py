"""``sacctmgr load``: reads a dump and adds or changes what it says; ``clean`` begins with an empty tree.

QOS are committed first, as in Slurm; all the rest is one change (sacctmgr_load_tree.py).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slurmbridge.commands.sacctmgr_file import (
    FileLine,
    QosLine,
    QuoteProblem,
    lines_of,
    read_line,
    read_qos,
    split_line,
)
from slurmbridge.commands.sacctmgr_load_tree import TreeLoader
from slurmbridge.commands.sacctmgr_merge import qos_changes
from slurmbridge.commands.sacctmgr_tables import (
    LIMITS_FORMAT,
    QOS_FORMAT,
    association_preview,
    header,
    qos_preview,
    table_row,
)
from slurmbridge.commands.sacctmgr_talk import COMMIT, Talk
from slurmbridge.commands.sacctmgr_words import Settings, refuse_operator, split_word, strip_quotes
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import active_qos

_CLEAN = ("You requested to flush the cluster before adding it again.\n"
          "It is advised to not have your slurmctld running while doing this operation.\n"
          "If you have jobs running on this cluster this operation will abort.\n"
          "Are you sure you want to continue?")
_RULE = "-" * 62 + "\n\n"
_SHORT_RULE = "-" * 51 + "\n\n"


class Abort(Exception):
    """The file is not read further; ``problem``: nothing of it is committed."""

    def __init__(self, problem: bool) -> None:
        self.problem = problem
        super().__init__()


async def load(talk: Talk, argv: Sequence[str]) -> None:
    file_name, cluster, clean = "", "", set[str]()
    for text in argv:
        word = split_word(text)
        if not refuse_operator(talk, word, False):
            continue
        if word.named("clean", 3):
            kinds = (word.value or "").lower()
            clean |= {"cluster"} | {name for name, spelled in (("account", "acc"), ("user", "user"), ("qos", "qos"))
                                    if spelled in kinds}
        elif word.value is None or word.named("File", 1):
            if file_name:
                talk.complain(f" File name already set to {file_name}\n")
                continue
            file_name = word.operand
        elif word.named("Cluster", 3):
            cluster = word.operand
        else:
            talk.complain(f" Unknown option: {word.text}\n")
    if not file_name:
        talk.complain(" No filename given, specify one with file=''\n")
        return
    path = file_name if file_name.startswith("/") else f"{talk.session.invocation.cwd}/{file_name}"
    try:
        content = await talk.session.read_file(path)
    except OSError as error:
        talk.complain(f' Unable to read "{argv[0]}": {error.strerror}\n')
        return
    loader = _Loader(talk, clean, cluster)
    try:
        await loader.read(content.decode("utf-8", "surrogateescape"))
    except QuoteProblem as problem:
        talk.complain(f"sacctmgr: fatal: There is a problem with option {problem} with quotes.\n")
        return
    except Abort as abort:
        if abort.problem:
            talk.complain(" Problem with requests: Unspecified error\n")
            return
        if loader.denied:
            return
    await loader.finish()


def _qos_names(text: str) -> Iterator[str]:
    """The QOS that the file has: they may name one another in any order."""
    for _, line in lines_of(text):
        parts = split_line(line)
        if parts is not None and parts[0].lower() == "qos":
            yield strip_quotes((parts[1] or "").partition(":")[0].strip()).lower()


class _Loader(TreeLoader):
    """One pass over a file."""

    def __init__(self, talk: Talk, clean: set[str], cluster: str) -> None:
        super().__init__(talk)
        self.clean = clean
        self.wanted_cluster = cluster
        self.cluster_seen = False
        self.denied = False
        self.new_qos: list[QosLine] = []
        self.changed_qos: list[tuple[str, str, Settings]] = []

    async def read(self, text: str) -> None:
        self.talk.coming_qos = frozenset(_qos_names(text))
        for number, line in lines_of(text):
            parts = split_line(line)
            if parts is None:
                continue
            kind, rest = parts[0].lower(), parts[1]
            if not rest:
                self.talk.complain(f" Nothing after object name '{parts[0]}'. line({number})\n")
                raise Abort(True)
            if kind == "qos":
                self._qos(number, rest)
            elif kind in ("cluster", "machine"):
                await self._cluster(number, rest)
            elif not self.cluster_seen:
                self.talk.complain(" You need to specify a cluster name first with 'Cluster - $NAME' in your file\n")
                raise Abort(False)
            elif kind == "parent":
                self._parent(number, rest)
            else:
                if not self.parent:
                    self.parent = "root"
                    self.talk.say(" No parent given creating off root, If incorrect specify 'Parent - name' "
                                  "before any children in your file\n")
                if kind in ("account", "project"):
                    self.account(self._line(number, rest))
                elif kind == "user":
                    self.user(self._line(number, rest))
                else:
                    self.talk.complain(f" Misformatted line({number}): {line}\n")
                    raise Abort(True)

    def _line(self, number: int, rest: str, prefix: str = "") -> FileLine:
        found = read_line(self.talk, rest)
        if found is None:
            self.talk.complain(f" {prefix}Problem with line({number})\n")
            raise Abort(True)
        return found

    # ---------------------------------------------------------------------------------------------------------- QOS
    def _qos(self, number: int, rest: str) -> None:
        found = read_qos(self.talk, rest)
        if found is None:
            self.talk.complain(f" Problem with line({number})\n")
            raise Abort(True)
        if self.cluster_seen:
            self.talk.complain(" You need to specify all QOS before the 'Cluster - $NAME' in your file\n")
            raise Abort(True)
        known = next((qos for qos in active_qos(self.talk.data) if qos.name == found.name), None)
        if known is None and any(line.name == found.name for line in self.new_qos):
            self.talk.complain(f" Problem with line({number}). QOS '{found.name}' has multiple entries. "
                               "Remove one to continue.\n")
            raise Abort(True)
        if known is None or "qos" in self.clean:
            self.new_qos.append(found)
            return
        lines, settings = qos_changes(self.talk.data.tres, known, found.settings)
        if settings:
            self.changed_qos.append((found.name, lines, settings))

    async def _commit_qos(self) -> None:
        talk = self.talk
        operations: list[dict[str, Any]] = []
        if "qos" in self.clean:
            operations += [{"op": "delete_qos", "name": qos.name} for qos in active_qos(talk.data) if qos.id != 1]
        if not self.new_qos and not self.changed_qos and not operations:
            return
        if self.new_qos or self.changed_qos:
            talk.say("QOS\n")
        known = {qos.name for qos in active_qos(talk.data)}
        if self.new_qos:
            talk.say(header(talk, [QOS_FORMAT]))
            for line in self.new_qos:
                talk.say(table_row(talk, [QOS_FORMAT], qos_preview(talk.data, line)) + _RULE)
                kind = "modify_qos" if line.name in known and line.name == "normal" else "add_qos"
                operations.append({"op": kind, "name": line.name,
                                   "settings": {"description": line.name, **line.settings}})
        for name, lines, settings in self.changed_qos:
            talk.say(lines)
            operations.append({"op": "modify_qos", "name": name, "settings": settings})
        try:
            talk.draft().apply_all(operations)
        except SlurmError as error:
            talk.log_error(error.text)
            raise Abort(True) from error
        await talk.commit(operations)
        self.draft = talk.draft()

    # ------------------------------------------------------------------------------------------------------ cluster
    async def _cluster(self, number: int, rest: str) -> None:
        talk = self.talk
        if self.cluster_seen and not self.wanted_cluster:
            talk.complain(" You can only add one cluster at a time.\n")
            raise Abort(True)
        found = self._line(number, rest, "error: ")
        name = (self.wanted_cluster or found.name).lower()
        if not talk.is_super:
            talk.complain(" Your user does not have sufficient privileges to load files.\n")
            self.denied = True
            raise Abort(False)
        if "cluster" in self.clean and not await talk.ask(_CLEAN):
            talk.say("Aborted\n")
            raise Abort(False)
        self.cluster_seen = True
        await self._commit_qos()
        talk.say(f"For cluster {name}\n")
        if name != talk.cluster.lower():
            talk.complain(f" Problem adding cluster: slurmbridge has the one cluster '{talk.cluster}'\n")
            raise Abort(True)
        if self.clean:
            self._flush(found)
        else:
            self._change_root(found)

    def _flush(self, found: FileLine) -> None:
        """Every association but the root's goes; the root begins anew with what the file says."""
        talk, tree = self.talk, self.draft.tree
        root = tree.root
        if root is None or any(job.state in ("PENDING", "RUNNING", "SUSPENDED")
                               for job in talk.session.views.jobs.values()):
            talk.complain(" There was a problem removing the cluster.\n")
            raise Abort(True)
        for child in list(tree.children.get(root.id, [])):
            if child.user != "root":
                self.apply({"op": "delete_association", "id": child.id})
        for name in [name for name in self.draft.data.accounts if "account" in self.clean and name != "root"]:
            self.apply({"op": "delete_account", "name": name})
        for name in [name for name in self.draft.data.users if "user" in self.clean and name != "root"]:
            self.apply({"op": "delete_user", "name": name})
        blank = _blank_settings()
        for record in self.draft.data.associations.values():
            if not record.deleted:
                self.operations.append({"op": "modify_association", "id": record.id, "settings": blank})
        self.draft = talk.draft().apply_all(self.operations)
        self.apply({"op": "modify_association", "id": root.id, "settings": {"qos": ["normal"], **found.settings}})
        formats = ["Account,ParentName", LIMITS_FORMAT]
        preview = association_preview(self.draft.data, self.draft.data.associations[root.id], found.settings,
                                      account="root")
        talk.say(header(talk, formats) + table_row(talk, formats, preview) + _RULE)
        self.changed = True

    def _change_root(self, found: FileLine) -> None:
        root = self.draft.tree.root
        if root is None:
            return
        self.change_association(root, "Cluster", self.talk.cluster, found.settings, None)

    # ------------------------------------------------------------------------------------------------------ parents
    def _parent(self, number: int, rest: str) -> None:
        self.parent = self._line(number, rest).name
        if self.draft.tree.find(self.parent) is None:
            self.talk.complain(f" line({number}) You need to add this parent ({self.parent}) as a child before you can "
                               "add children to it.\n")
            raise Abort(False)

    # ------------------------------------------------------------------------------------------------------ the end
    async def finish(self) -> None:
        talk = self.talk
        for title, formats, rows, rule in (
                ("Accounts", ["Name,Description,Organization,QOS"], self.new_accounts, _SHORT_RULE),
                ("Account Associations", ["Account,ParentName", LIMITS_FORMAT], self.new_associations, _RULE),
                ("Users", ["Name,DefaultA,DefaultW,QOS,Admin,Coord"], self.new_users, _SHORT_RULE),
                ("User Associations", ["User,Account", LIMITS_FORMAT], self.new_user_associations, _RULE)):
            if rows:
                talk.say(f"{title}\n{header(talk, formats)}")
                talk.say("".join(table_row(talk, formats, row) for row in rows) + rule)
                self.changed = True
        if not self.changed:
            talk.say(" Nothing new added.\n")
            return
        talk.warn("sacctmgr: Done adding cluster in usec=0\n" if not talk.quiet else "")
        for operation in self.later:
            if operation["account"] in self.draft.data.accounts:
                self.apply(operation)
        for user, account in self.default_accounts.items():
            mine = self.draft.tree.by_user.get(user, ())
            current = next((record.account for record in mine if record.is_default), "")
            if account != current and any(record.account == account for record in mine):
                self.apply({"op": "set_default_account", "user": user, "account": account})
        await talk.commit(self.operations, COMMIT)


def _blank_settings() -> dict[str, Any]:
    """Settings that take everything back which an association can set."""
    fields = ("grp_tres", "grp_tres_mins", "grp_tres_run_mins", "grp_jobs", "grp_jobs_accrue", "grp_submit_jobs",
              "grp_wall_min", "max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job", "max_tres_run_mins",
              "max_wall_min", "max_jobs", "max_jobs_accrue", "max_submit_jobs", "min_prio_threshold", "shares",
              "priority", "default_qos", "qos", "comment")
    return dict.fromkeys(fields)
