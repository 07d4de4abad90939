"""When Pyxis' options (``--container-image`` and its kin) ask for a container at all."""
from __future__ import annotations

from collections.abc import Collection, Mapping

IMAGE, NAME = "container-image", "container-name"


def needs_image(given: Collection[str]) -> bool:
    """``given``: names of Pyxis' options; the others do nothing without one of these two."""
    return IMAGE in given or NAME in given


def without_effect(given: Mapping[str, str]) -> list[str]:
    """Pyxis' complaints about options that need an image."""
    if needs_image(given):
        return []
    return [f"pyxis: ignoring --{name} because neither --{IMAGE} nor --{NAME} is set" for name in given]
