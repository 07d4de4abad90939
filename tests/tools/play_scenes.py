"""Plays recorded scenes and says what differs: play_scenes.py FILE.jsonl [NAME…], run with the project's python."""
from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scenes.playing import make_users, needs_processes, play_in_own_time, scene_name


def main(path: str, *names: str) -> None:
    make_users()
    good = bad = 0
    for line in Path(path).read_text().splitlines():
        scene = json.loads(line)
        if names and not {scene_name(scene), str(scene["seed"])} & set(names):
            continue
        if needs_processes(scene):
            print(f"{scene_name(scene)}: needs real processes")
            continue
        began = time.monotonic()
        found = play_in_own_time(scene)
        good, bad = good + (not found), bad + bool(found)
        print(f"{scene_name(scene)}: {'differs' if found else 'as recorded'} ({time.monotonic() - began:.1f} s)",
              *found, sep="\n    ", flush=True)
    print(f"{good} of {good + bad} scenes as recorded")


if __name__ == "__main__":
    main(*sys.argv[1:])
