"""The init container of clusters without image volumes: copies the runtime into the volume that the job's pod has."""
from __future__ import annotations

import os
import shutil


def main(argv: list[str]) -> int:
    """``FROM TO``: the image's root, where only the runtime's own folders are taken, and an empty folder."""
    source, target = argv
    for name in ("lib", "libexec", "bin", "app"):
        shutil.copytree(os.path.join(source, name), os.path.join(target, name), symlinks=True, dirs_exist_ok=True,
                        copy_function=shutil.copy)
    return 0
