from __future__ import annotations

from accord.core.policy.policy import Policy
from accord.core.policy.preferences import PRESETS, Preferences


def test_presets_of_the_demonstration() -> None:
    said = {
        name: (preset.shaping, preset.deadline_ms, preset.replacement)
        for name, preset in PRESETS.items()
    }
    assert said == {
        "Default": ("none", 0, None),
        "NoDrop": (None, 0, None),
        "FullImageDrop": ("none", 5_000, None),
        "GeneralSurv": ("scaling", 5_000, None),
        "FullImageNoDrop": ("none", 0, None),
        "FullImage": ("none", None, None),
        "BFTrack": (None, 15_000, None),
    }


def test_a_policy_asks_what_its_preset_says() -> None:
    assert Policy(name="x", preferences="BFTrack").resolved_preferences == Preferences(
        deadline_ms=15_000
    )
    assert (
        Policy(
            name="x", preferences=Preferences(replacement=False)
        ).resolved_preferences.replacement
        is False
    )
    assert Policy(name="x", importance=3).resolved_preferences.is_empty
