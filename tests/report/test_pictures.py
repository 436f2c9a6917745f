"""Images in a page: small, bounded, and a box with a reason where there is none."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compact_bilinear.report.pictures import SIDES, Embedded, Picture, embed, overlay


def opened(embedded: Embedded) -> Image.Image:
    head, _, data = embedded.address.partition(",")
    assert head == "data:image/jpeg;base64"
    raw = base64.b64decode(data, validate=True)
    assert len(raw) == embedded.size
    image = Image.open(io.BytesIO(raw))
    assert (image.format, image.size) == ("JPEG", (embedded.width, embedded.height))
    return image


def noise(number: int, height: int = 200, width: int = 300) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_files_and_pixels_are_the_same_image(tmp_path: Path) -> None:
    rise = np.linspace(20, 230, 96)
    pixels = np.stack(np.broadcast_arrays(rise[:, None], rise, 128), 2).round().astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    of_file, of_pixels = Picture(tmp_path / "a.png", "a"), Picture(pixels, "a")
    found = embed([of_file, of_pixels])
    assert found[of_file] == found[of_pixels]
    shown = np.asarray(opened(found[of_file]).convert("RGB"), float)
    assert shown.shape == pixels.shape
    assert np.abs(shown - pixels).max() < 8, "smooth colours survive JPEG at quality 82"
    assert embed([of_file])[of_file] == found[of_file], "the same bytes again"


def test_proportions_stay_and_large_images_become_small() -> None:
    wide = Picture(noise(0, 700, 1400), "wide")
    assert opened(embed([wide])[wide]).size == (SIDES[0][0], SIDES[0][0] // 2)


@pytest.mark.parametrize("bound", [2_000_000, 300_000, 60_000, 10_000])
def test_together_they_hold_the_bound(bound: int) -> None:
    pictures = [Picture(noise(k), str(k)) for k in range(13)]
    found = embed(pictures, bound)
    assert sum(each.size for each in found.values()) <= bound
    shown = [found[each] for each in pictures if found[each].address]
    assert all(opened(each) for each in shown)
    assert len({max(each.width, each.height) for each in shown}) == 1
    if bound >= 60_000:
        assert len(shown) == 13, "smaller, but all"
    else:
        assert 0 < len(shown) < 13
        left_out = [each for each in pictures if not found[each].address]
        assert left_out == pictures[len(shown) :], "the last are left out"
        assert all("0.01 MB" in found[each].absent for each in left_out)


def test_what_cannot_be_read_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.png").write_text("<script>")
    pictures = [Picture(tmp_path / name, name) for name in ("empty.jpg", "text.png", "gone.jpg", ".")]
    found = embed(pictures)
    assert [found[each].absent for each in pictures][:3] == [
        "empty.jpg: the file is empty",
        "text.png: not an image in a known format",
        "gone.jpg: no such file or directory",
    ]
    assert all(found[each].address == "" and str(tmp_path.parent) not in found[each].absent for each in pictures)


def test_evidence_is_orange_where_it_speaks_for_and_blue_where_against() -> None:
    grey = Image.fromarray(np.full((90, 120, 3), 128, np.uint8))
    evidence = np.zeros((3, 4))
    evidence[0, 0], evidence[2, 3] = 5.0, -5.0
    shown = np.asarray(overlay(grey, evidence), float)
    assert shown.shape == (90, 120, 3)
    red, blue = shown[..., 0] - shown[..., 2], shown[..., 2] - shown[..., 0]
    assert red[10, 10] > 100
    assert blue[80, 110] > 100
    assert np.abs(red[45, 60]) < 5, "nothing in the middle"
    np.testing.assert_array_equal(shown, overlay(grey, 1e-9 * evidence), "only proportions count")
    flat = np.asarray(overlay(grey, np.zeros((3, 4))))
    assert (flat == flat[0, 0]).all()
    assert overlay(grey, np.array([[np.nan, 1.0]])).size == grey.size


def test_pictures_know_what_they_take() -> None:
    with pytest.raises(ValueError, match=r"float64 of shape \(4, 4, 3\)\.\nPass a Path; or multiply by 255"):
        Picture(np.zeros((4, 4, 3)), "a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"of 'a' is \(2, 3, 4\)\.\nPass that of one image"):
        Picture(Path("a.jpg"), "a", evidence=np.zeros((2, 3, 4)))


def test_the_alternative_says_what_marks_say() -> None:
    assert Picture(Path("a.jpg"), "crow", "0.93", right=False).alternative == "crow, 0.93, wrong"
    assert Picture(Path("a.jpg"), "crow", evidence=np.zeros((2, 2))).alternative == "crow, the evidence laid over it"
