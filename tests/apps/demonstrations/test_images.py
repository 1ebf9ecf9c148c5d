"""Aerial views: real JPEG files of the scenario's size, the same in every run."""

from __future__ import annotations

import io

from PIL import Image

from accord.apps.demonstrations.images import MAX_BYTES, MIN_BYTES, VIEW, Camera


def test_images_are_of_the_size_that_the_scenario_has() -> None:
    for camera in (
        Camera("UAV-1", seed=1, radius=420),
        Camera("CAS-1", seed=3, radius=240, zoom=1.6),
    ):
        sizes = [len(camera.view(number).jpeg) for number in range(6)]
        assert all(MIN_BYTES <= size <= MAX_BYTES for size in sizes), sizes
        assert len(set(sizes)) > 3


def test_an_image_is_a_jpeg_with_something_to_see() -> None:
    picture = Image.open(io.BytesIO(Camera("UAV-1", seed=1, radius=420).view(2).jpeg))
    assert picture.format == "JPEG"
    assert picture.size == VIEW
    colours = picture.convert("RGB").resize((32, 24)).getcolors(32 * 24)
    assert colours is not None
    assert len(colours) > 200


def test_the_camera_moves_and_a_run_repeats() -> None:
    first, second = (Camera("UAV-1", seed=1, radius=420) for _ in range(2))
    assert first.view(3) == second.view(3)
    assert first.view(3).jpeg != first.view(4).jpeg
    assert (first.view(3).lat, first.view(3).lon) != (first.view(4).lat, first.view(4).lon)
    assert Camera("UAV-2", seed=2, radius=330).view(3).jpeg != first.view(3).jpeg
