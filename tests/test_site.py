"The preview of the site in a browser: wide and at phone width, light and dark, with every other host blocked."
import functools, http.server, importlib.util, re, shutil, threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
WIDTHS, SCHEMES = [1280, 400], ["light", "dark"]
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync".split()

LOOK = """() => {
  const main = document.querySelector('main'), box = main.getBoundingClientRect();
  const shown = r => r.width > 0 && r.height > 0 && r.left >= box.left - 1 && r.right <= box.right + 1;
  const scrolls = e => e !== main && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const cut = [...main.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > box.right + 1 && !scrolls(e));
  return {
    cut: cut.map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40)).slice(0, 3),
    width: document.documentElement.scrollWidth, text: main.innerText,
    maths: [...main.querySelectorAll('.math')].map(m => m.textContent).join(' '),
    images: [...main.querySelectorAll('img')].map(i => ({alt: (i.alt || '').trim(), shown: i.naturalWidth > 0 && shown(i.getBoundingClientRect())})),
  };
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass


@pytest.fixture(scope="session")
def built():
    "The problems that tools/site.py finds while it builds _docs/."
    spec = importlib.util.spec_from_file_location("preview", ROOT/"tools/site.py")
    preview = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preview)
    return preview.build()


@pytest.fixture(scope="session")
def pages(built):
    return sorted(str(p.relative_to(ROOT/"_docs")) for p in (ROOT/"_docs").rglob("*.html") if p.parent != ROOT/"_docs")


@pytest.fixture(scope="session")
def site(built):
    "Address of a server of _docs/ on a free local port."
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=ROOT/"_docs"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "no chromium on PATH: install it (Debian and Ubuntu: apt install chromium; macOS: brew install chromium)"
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, site):
    "Opens a page; `errors` collects what the console says and `blocked` the requests to other hosts."
    contexts = {}

    def _visit(path, width=1280, scheme="light"):
        if (width, scheme) not in contexts: contexts[width, scheme] = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = contexts[width, scheme].new_page()
        page.set_default_timeout(10_000)
        page.errors, page.blocked = [], []
        page.on("console", lambda m: m.type == "error" and page.errors.append(m.text))
        page.on("pageerror", lambda e: page.errors.append(str(e)))

        def local_only(route):
            if route.request.url.startswith(site): return route.continue_()
            page.blocked.append(route.request.url)
            route.abort()
        page.route("**/*", local_only)
        page.goto(site + path)
        return page

    yield _visit
    for context in contexts.values(): context.close()


def background(page):
    "Brightness of the page's background, 0 to 255."
    return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3])) / 3


def test_no_problems(built): assert not built, "\n".join(built)


def test_sidebar_lists_every_page(built, pages, visit):
    page = visit("nbs/index.html")
    listed = page.eval_on_selector_all("#quarto-sidebar a[href]", "as => as.map(a => new URL(a.href).pathname.slice(1))")
    assert sorted(set(listed)) == pages


def test_root_shows_the_front_page(visit):
    page = visit("")
    page.wait_for_url("**/nbs/index.html")
    assert page.title() == "robustness_nb"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages(pages, visit, width, scheme):
    "Every page: readable without other hosts, no wider than the window, no error in the console, every figure seen and described."
    faults = []
    for path in pages:
        page = visit(path, width, scheme)
        seen = page.evaluate(LOOK)
        if seen["width"] > width + 1: faults.append(f"{path} is {seen['width']} pixels wide")
        if seen["cut"]: faults.append(f"{path}: cut off at the right: {seen['cut']}")
        if len(seen["text"]) < 200: faults.append(f"{path} is empty")
        if r"\(" in seen["maths"] or r"\[" in seen["maths"]: faults.append(f"{path} shows TeX source")
        if (background(page) < 128) != (scheme == "dark"): faults.append(f"{path} is not {scheme}")
        faults += [f"{path}: picture {i + 1} is not shown" for i, img in enumerate(seen["images"]) if not img["shown"]]
        faults += [f"{path}: picture {i + 1} has no alt text" for i, img in enumerate(seen["images"]) if not img["alt"]]
        faults += [f"{path}: console: {e}" for e in page.errors] + [f"{path} asks {url}" for url in page.blocked]
        page.close()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("width", WIDTHS)
def test_search(visit, width):
    page = visit("nbs/index.html", width)
    if width < 992: page.click(".navbar-toggler")
    page.fill("#quarto-search input", "corruption")
    page.wait_for_selector(".search-result")
    assert any("corruption" in text.lower() for text in page.locator(".search-result").all_inner_texts())
    page.locator(".search-result").first.click()
    page.wait_for_load_state()
    assert "corruption" in page.inner_text("main").lower()


def test_toggle_to_dark_is_remembered(visit):
    page = visit("nbs/index.html")
    assert background(page) > 128
    page.click(".quarto-color-scheme-toggle")
    page.wait_for_function("document.documentElement.classList.contains('quarto-dark')")
    assert background(page) < 128
    page.reload()
    assert background(page) < 128


def test_sidebar_opens_on_a_phone(visit):
    page = visit("nbs/papers/digits_gap.html", 400)
    page.click(".quarto-btn-toggle")
    page.locator("#quarto-sidebar a", has_text="metrics").first.click()
    page.wait_for_url("**/nbs/lib/metrics.html")
