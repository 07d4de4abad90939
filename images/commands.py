"""The users' commands as the controller's image has them: ``python images/commands.py FOLDER [PYTHON ROOT]``.

One static program under all names. For https:// it starts ``PYTHON`` with the package of ``ROOT`` in the image.
"""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from slurmbridge.client import install


def assemble(target: Path, python: str = "/usr/local/bin/python3", root: str = "/opt/slurmbridge") -> None:
    """``target`` is made anew. Raises OSError without a C compiler."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    client = install.build_client(target / "build", python, root=root)
    if client is None:
        raise OSError("a C compiler is needed for the users' commands")
    for name in install.provided():
        os.link(client, target / name)
    shutil.rmtree(target / "build")


if __name__ == "__main__":
    assemble(Path(sys.argv[1]).absolute(), *sys.argv[2:])
