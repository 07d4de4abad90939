"""``sacctmgr delete user``."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_modify import deny
from slurmbridge.commands.sacctmgr_removal import Removal, active_jobs, refused, remove_associations
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_users import matching_users, user_conditions
from slurmbridge.commands.sacctmgr_where import ASSOCIATION, WCKEY, Where, here
from slurmbridge.slurm import errors


async def delete_user(talk: Talk, argv: Sequence[str]) -> None:
    where = Where()
    given = user_conditions(talk, argv, where, wckeys=True)
    if where.clusters and not given & WCKEY:
        given |= ASSOCIATION
    if not given:
        talk.complain(" No conditions given to remove, not executing.\n")
        return
    if talk.exit_code:
        return
    if not where.narrows():
        if given & (ASSOCIATION | WCKEY):
            talk.say(" Nothing deleted\n")
        else:
            talk.complain(f" Error with request: {errors.strerror(errors.SLURM_NO_CHANGE_IN_DATA)}\n")
        talk.exit_code = 1
        return
    if given & WCKEY:
        await _delete_wckeys(talk, where)
        return
    removal = remove_associations(talk, where) if given & ASSOCIATION else _remove_users(talk, where)
    if removal is None:
        return
    if refused(talk, removal, " You must change the default account of these users or remove the users completely "
                               "from the affected clusters to allow these changes.\n Changes Discarded\n"):
        return
    title = " Deleting user associations...\n" if given & ASSOCIATION else " Deleting users...\n"
    talk.say(title + "".join(f"  {line}\n" for line in removal.lines))
    if given & ASSOCIATION:
        _remove_bare_users(talk, removal)
    await talk.commit(removal.operations)


def _remove_bare_users(talk: Talk, removal: Removal) -> None:
    """Users who have no association left go too."""
    tree = talk.draft().apply_all(removal.operations).tree
    bare = [name for name in sorted(removal.users) if name in talk.data.users and not tree.by_user.get(name)]
    if bare and talk.is_operator:
        talk.say(" Deleting users (No Associations)...\n" + "".join(f"  {name}\n" for name in bare))
        removal.operations.extend({"op": "delete_user", "name": name} for name in bare)


def _remove_users(talk: Talk, where: Where) -> Removal | None:
    names = [user.name for user in matching_users(talk, where)]
    tree = talk.tree()
    mine = talk.coordinated()
    if not talk.is_operator and not (mine and all(
            record.account in mine for name in names for record in tree.by_user.get(name, ()))):
        deny(talk)
        return None
    busy = active_jobs(talk, [record for name in names for record in tree.by_user.get(name, ())])
    if busy:
        return Removal(problem=errors.ESLURM_JOBS_RUNNING_ON_ASSOC, lines=busy)
    return Removal([{"op": "delete_user", "name": name} for name in names], names)


async def _delete_wckeys(talk: Talk, where: Where) -> None:
    if not talk.is_operator:
        deny(talk)
        return
    chosen = [(number_of, name, user) for number_of, (name, user) in talk.data.wckeys.items()
              if (not where.wckeys or name in where.wckeys) and (not where.users or user in where.users)
              and here(talk, where)]
    if not chosen:
        talk.say(" Nothing deleted\n")
        talk.exit_code = 1
        return
    talk.say(" Deleting user WCKeys...\n" + "".join(
        f"  C = {talk.cluster:<10} W = {name:<20} U = {user:<9}\n" for _, name, user in chosen))
    await talk.commit([{"op": "delete_wckey", "id": number_of} for number_of, _, _ in chosen])
