"""What scenarios are made of."""

from __future__ import annotations

import json

from accord.apps.demonstrations.images import Camera, View
from accord.apps.demonstrations.scenario import MAX_IMAGES, image_source, json_payload


class CountingCamera(Camera):
    """Paints nothing, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__("mast", seed=1, radius=0)
        self.views = 0

    def view(self, number: int) -> View:
        self.views += 1
        return View(0.0, 0.0, 0, str(number).encode())


def test_a_camera_paints_no_more_than_it_shows_and_begins_again() -> None:
    for seconds, images in ((8.0, 7), (3_600.0, MAX_IMAGES)):
        camera = CountingCamera()
        source = image_source(camera, "c", 1.4, 0.0, seconds=seconds, describe=lambda _: {"a": 1})
        assert camera.views == images
        shown = [source.sample(number).payload for number in range(images + 1)]
        assert len(set(shown)) == images
        assert shown[-1] == shown[0]


def test_a_payload_has_exactly_the_size_and_is_json() -> None:
    payload = json_payload({"a": 1}, 100)
    assert len(payload) == 100
    assert json.loads(payload) == {"a": 1}
