"""The page in a real browser, without a window: what a person does with it, and what they see."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import photos
from compact_bilinear.serve.guard import Guard
from serving import Shelf, application, model, picture, running

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(model(), photos.photos(tmp_path_factory.mktemp("page")))


@pytest.fixture
def app(shelf: Shelf) -> Guard:
    return application(model(), shelf)


@pytest.fixture
def url(app: Guard) -> Iterator[str]:
    with running(app) as url:
        yield url


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The page, whose console has to stay empty."""
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda fault: complaints.append(str(fault)))
    page.complaints = complaints
    page.goto(url)
    page.locator("#about").filter(has_text="3 classes · 27 images to compare with").wait_for()
    yield page
    page.close()
    assert complaints == []


def files(**images: bytes) -> list[dict[str, Any]]:
    return [{"name": f"{name}.jpg", "mimeType": "image/jpeg", "buffer": content} for name, content in images.items()]


def card(page: Any, name: str) -> Any:
    return page.locator(".card", has=page.get_by_role("heading", name=name, level=2))


def test_an_image_is_uploaded_and_its_result_shown(page: Any) -> None:
    page.get_by_label("Choose images").set_input_files(files(leaf=picture(1, (300, 200))))
    leaf = card(page, "leaf.jpg")
    leaf.locator(".near img").nth(11).wait_for()
    names = leaf.locator(".class b").all_inner_texts()
    assert sorted(names) == ["bark", "brick", "moss"]
    parts = [float(each.split()[0].lstrip("< ")) for each in leaf.locator(".class span").all_inner_texts()]
    assert parts == sorted(parts, reverse=True)
    assert sum(parts) == pytest.approx(100, abs=0.2)
    widths = leaf.locator(".class i").evaluate_all(
        "all => all.map(each => parseFloat(getComputedStyle(each, '::before').width))"
    )
    assert widths == sorted(widths, reverse=True)
    assert page.locator("#said").inner_text() == f"leaf.jpg: {names[0]}, {parts[0]:.1f} %"
    assert leaf.get_attribute("aria-busy") == "false"
    # the map lies over the whole picture, which is as wide as it should be
    picture_box, map_box = leaf.locator("img").first.bounding_box(), leaf.locator("canvas").bounding_box()
    assert map_box == pytest.approx(picture_box, abs=1)
    assert picture_box["width"] / picture_box["height"] == pytest.approx(1.5, rel=0.01)


def test_evidence_is_of_the_class_that_is_chosen_and_can_be_faded_and_hidden(page: Any) -> None:
    page.get_by_label("Choose images").set_input_files(files(leaf=picture(1)))
    leaf = card(page, "leaf.jpg")
    leaf.locator(".near img").first.wait_for()
    canvas, buttons = leaf.locator("canvas"), leaf.locator("button.class")
    read = "one => one.toDataURL()"
    first = canvas.evaluate(read)
    assert [each.get_attribute("aria-pressed") for each in buttons.all()] == ["true", "false", "false"]
    buttons.nth(2).click()
    assert [each.get_attribute("aria-pressed") for each in buttons.all()] == ["false", "false", "true"]
    assert canvas.evaluate(read) != first
    assert leaf.locator(".of").inner_text().strip() == f"for {buttons.nth(2).locator('b').inner_text()}"
    leaf.get_by_label("Strength").fill("30")
    assert canvas.evaluate("one => one.style.opacity") == "0.3"
    leaf.get_by_label("Evidence").uncheck()
    assert canvas.is_hidden()


def test_a_neighbour_is_searched_on_from(page: Any, shelf: Shelf) -> None:
    page.get_by_label("Choose images").set_input_files(files(leaf=picture(1)))
    near = card(page, "leaf.jpg").locator("button.near")
    near.nth(2).locator("img").wait_for()
    path = near.nth(2).get_attribute("title")
    assert path in shelf.images.paths
    near.nth(2).click()
    new = page.locator(".card").first
    new.locator("button.near img").first.wait_for()
    assert new.get_by_role("heading", level=2).inner_text().splitlines() == [path.split("/")[-1], "near leaf.jpg"]
    assert page.evaluate("document.activeElement.tagName") == "H2"
    assert path not in [each.get_attribute("title") for each in new.locator("button.near").all()]
    assert page.locator(".card").count() == 2


def test_a_broken_file_among_good_ones_is_told_in_its_place(page: Any) -> None:
    page.get_by_label("Choose images").set_input_files(files(one=picture(1), broken=b"words", two=picture(2)))
    for name in ("one.jpg", "two.jpg"):
        card(page, name).locator(".near").first.wait_for()
    broken = card(page, "broken.jpg")
    broken.locator(".state", has_text="Not an image in a known format.").wait_for()
    assert page.locator(".card h2").all_inner_texts() == ["one.jpg", "broken.jpg", "two.jpg"]
    broken.get_by_label("Remove broken.jpg").click()
    assert page.locator(".card").count() == 2
    # Chromium says itself what the server answered to the broken one
    assert len(page.complaints) == 1
    assert "422" in page.complaints.pop()


def test_by_keyboard_alone(page: Any) -> None:
    choosers: list[Any] = []
    # from the beginning, for it takes a moment until Chromium hands its dialogues over
    page.on("filechooser", lambda chooser: choosers.extend([chooser]))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "files"
    page.keyboard.press("Enter")
    while not choosers:
        page.wait_for_timeout(10)
    choosers[0].set_files(files(leaf=picture(1)))
    card(page, "leaf.jpg").locator(".near img").first.wait_for()
    order = []
    for _ in range(7):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.className"))
    assert order[0] == "Remove leaf.jpg"
    assert order[3:6] == ["class"] * 3
    assert "Search on from this image" in order[6]
    page.keyboard.press("Enter")
    page.locator(".card").nth(1).wait_for()


def test_pasted_and_dropped(page: Any) -> None:
    give = """([bytes, kind]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], kind + ".jpg", { type: "image/jpeg" }));
      const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        : new DragEvent("drop", { dataTransfer: data, bubbles: true });
      document.body.dispatchEvent(event);
    }"""
    for kind in ("paste", "drop"):
        page.evaluate(give, [list(picture(1)), kind])
        card(page, f"{kind}.jpg").locator(".near img").first.wait_for()


def test_the_server_goes_and_comes_back(browser: Any, shelf: Shelf) -> None:
    page = browser.new_page()
    with running(application(model(), shelf)) as url:
        page.goto(url)
        page.locator("#about").filter(has_text="classes").wait_for()
    assert page.locator("#banner").is_hidden()
    page.get_by_label("Choose images").set_input_files(files(leaf=picture(1)))
    page.locator("#banner", has_text="The server does not answer.").wait_for()
    card(page, "leaf.jpg").locator(".state", has_text="Waiting for the server").wait_for()
    with running(application(model(), shelf), port=int(url.rpartition(":")[2])):
        page.get_by_role("button", name="Try now").click()
        card(page, "leaf.jpg").locator(".near img").first.wait_for()
        assert page.locator("#banner").is_hidden()
        page.close()


def test_a_token_is_asked_for_and_kept(browser: Any) -> None:
    token = "a-token-of-many-letters"
    with running(application(token=token)) as url:
        page = browser.new_page()
        page.goto(url)
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("That was not the token.").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Go on").click()
        page.locator("#about").filter(has_text="3 classes").wait_for()
        page.reload()
        page.locator("#about").filter(has_text="3 classes").wait_for()
        assert page.locator("#token").is_hidden()
        page.close()


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_is_wider_than_the_window(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    long = {"a-very-long-name-" + "without-any-space-" * 6: picture(1, (400, 90)), "tall": picture(2, (60, 300))}
    page.get_by_label("Choose images").set_input_files(files(**long))
    page.locator(".card[aria-busy=false]").nth(1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_they_stand_on(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.get_by_label("Choose images").set_input_files(files(leaf=picture(1)))
    card(page, "leaf.jpg").locator(".near img").first.wait_for()
    colours = page.evaluate(COLOURS)
    assert len(colours) > 10
    for words, ink, ground in colours:
        assert contrast(ink, ground) >= 4.5, (words, ink, ground)


# of every element with words of its own: the words, their colour, and the first ground behind them
COLOURS = """() => [...document.querySelectorAll("body *")].filter(each => each.checkVisibility()
    && [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())).map(each => {
  let behind = each;
  while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const read = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const style = (one) => getComputedStyle(one ?? document.body);
  return [each.textContent.trim(), read(style(each).color), read(style(behind).backgroundColor)];
})"""


def contrast(ink: list[float], ground: list[float]) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: list[float]) -> float:
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (one / 255 for one in colour)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_folder_of_the_page_is_all_there() -> None:
    folder = Path(__file__).parents[2] / "src/compact_bilinear/serve/page"
    assert {each.name for each in folder.iterdir()} == {"page.html", "page.css", "page.js", "icon.svg"}
