"""``sacctmgr add|delete coordinator``."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.sacctmgr_modify import deny
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_users import user_conditions
from slurmbridge.commands.sacctmgr_where import Where
from slurmbridge.slurm import errors


def _check_coordinators(talk: Talk, where: Where, both: bool) -> bool:
    if both and not where.users:
        talk.complain(" You need to specify a user list here.\n")
        return False
    if both and not where.accounts:
        talk.complain(" You need to specify an account list here.\n")
        return False
    fine = True
    for what, names, known in (("account", where.accounts, talk.data.accounts), ("user", where.users, talk.data.users)):
        for name in names or ():
            if name not in known or known[name].deleted:
                talk.complain(f" You specified a non-existent {what} '{name}'.\n")
                fine = False
    return fine


async def add_coordinator(talk: Talk, argv: Sequence[str]) -> None:
    where = Where()
    given = user_conditions(talk, argv, where)
    if talk.exit_code:
        return
    if not given:
        talk.complain(" You need to specify conditions to to add the coordinator.\n")
        return
    if not _check_coordinators(talk, where, True):
        return
    users, accounts = where.users or [], where.accounts or []
    talk.say(" Adding Coordinator User(s)\n" + "".join(f"  {name}\n" for name in users)
             + " To Account(s) and all sub-accounts\n" + "".join(f"  {name}\n" for name in accounts))
    if not talk.is_operator and not talk.coordinated().issuperset(accounts):
        talk.complain(f" Problem adding coordinator: {errors.strerror(errors.ESLURM_ACCESS_DENIED)}\n")
        return
    await talk.commit([{"op": "add_coordinator", "account": account, "user": user}
                       for user in users for account in accounts])


async def delete_coordinator(talk: Talk, argv: Sequence[str]) -> None:
    where = Where()
    given = user_conditions(talk, argv, where)
    if talk.exit_code:
        return
    if not given:
        talk.complain(" You need to specify a user list or account list here.\n")
        return
    if not _check_coordinators(talk, where, False):
        return
    users, accounts = where.users or [], where.accounts or []
    user_lines = "".join(f"  {name}\n" for name in users)
    account_lines = "".join(f"  {name}\n" for name in accounts)
    if users:
        talk.say(f" Removing Coordinators with user name\n{user_lines}"
                 + (f" From Account(s)\n{account_lines}" if accounts else " From all accounts\n"))
    else:
        talk.say(f" Removing all users from Accounts\n{account_lines}")
    mine = talk.coordinated()
    if not talk.is_operator and not mine:
        deny(talk)
        return
    going = [(user, account.name) for account in talk.data.accounts.values() for user in account.coordinators
             if (not users or user in users) and (not accounts or account.name in accounts)]
    if not talk.is_operator and not mine.issuperset(account for _, account in going):
        deny(talk)
        return
    if not going:
        talk.say(" Nothing removed\n")
        talk.exit_code = 1
        return
    talk.say(" Removed Coordinators (sub accounts not listed)...\n"
             + "".join(f"  U = {user:<9} A = {account:<10}\n" for user, account in going))
    await talk.commit([{"op": "delete_coordinator", "account": account, "user": user} for user, account in going])
