"""Preview of the site, made offline: nbdev fills _proc/, smalldocs renders it into _docs/, then this file adds what smalldocs lacks and checks every page.

Run as `python tools/site.py`; it exits 1 and lists what is wrong. The published site is rendered by Quarto from the same _proc/ and _quarto.yml.
Added to each page: numbered figures, tables and equations with links to them, citations with a list of references, mathematics as MathML,
nbdev's page names (metrics.html for 00_metrics.ipynb). Checked: warnings of smalldocs that site_allowlist.txt does not name, links, anchors, alt texts.
"""
import fnmatch, json, os, re, subprocess, sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup
from math_core import LatexError, LatexToMathML
from smalldocs.config import load
from smalldocs.site import Site

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT/"_docs"
TEX = LatexToMathML(fancy_error=False)
KINDS = {"fig": "Figure", "tbl": "Table", "eq": "Equation"}
NUMBERED = re.compile(r'(?<![^/"])\d\d[a-z]?_(?=\w+\.html)')  # the 00_ of "lib/00_metrics.html"
REFERENCE = re.compile(r"\[(?P<group>[^][]*@\w[^][]*)\]|(?<!\w)@(?P<key>\w[\w:-]*\w)(?:\s\[(?P<where>[^][@]+)\])?")
FIELD = re.compile(r'(\w+)\s*=\s*(?:\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}|"([^"]*)"|(\d+))')


def render() -> tuple[list[str], dict[Path, dict]]:
    "Fill _proc/ and render it into _docs/; returns the warnings that site_allowlist.txt does not name, and each page's table captions."
    subprocess.run([sys.executable, "-c", "from nbdev.serve import proc_nbs; proc_nbs()"], cwd=ROOT, check=True, env={**os.environ, "MPLBACKEND": "agg"})
    site = Site(load(ROOT/"_proc"), quiet=True)
    site.out = DOCS
    site.build()
    captions = {DOCS/NUMBERED.sub("", str(page.out)): table_captions(ROOT/"_proc"/page.src) for page in site.pages.values()}
    allowed = [line for line in (ROOT/"tools/site_allowlist.txt").read_text().splitlines() if line and not line.startswith("#")]
    return [w for w in site.warnings if not any(fnmatch.fnmatchcase(w, a) for a in allowed)], captions


def bibliography(path: Path) -> dict[str, tuple[str, str, str]]:
    "Short authors, year and full entry (HTML) of each key in a BibTeX file."
    entries = {}
    for key, body in re.findall(r"^@\w+\{([^,\s]+),(.*?)^\}", path.read_text(), re.S | re.M):
        f = {k.lower(): a or b or c for k, a, b, c in FIELD.findall(body)}
        people = re.split(r"\s+and\s+", f.get("author", key))
        names = [a.strip("{}") if a.startswith("{") else a.split(",")[0] if "," in a else a.split()[-1] for a in people]
        short = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        where = f.get("journal") or f.get("booktitle") or f.get("publisher") or f.get("howpublished")
        url = f.get("url") or (f"https://doi.org/{f['doi']}" if "doi" in f else "")
        text = f"{'; '.join(people)} ({f.get('year', 'n.d.')}). {f.get('title', key)}." + (f" <em>{where}</em>." if where else "")
        entries[key] = short, f.get("year", "n.d."), re.sub("[{}]", "", text) + (f' <a href="{url}">{url}</a>' if url else "")
    return entries


def table_captions(notebook: Path) -> dict[str, str]:
    "Caption of each labelled table cell of a notebook: smalldocs leaves it out where the output is Markdown."
    cells = ["".join(c["source"]) for c in json.loads(notebook.read_text())["cells"]] if notebook.suffix == ".ipynb" else []
    options = [yaml.safe_load("\n".join(re.findall(r"^#\|(.*)", c, re.M))) or {} for c in cells if "#| tbl-cap" in c]
    return {o["label"]: o["tbl-cap"] for o in options if "label" in o}


class Page:
    "One rendered page, mended and checked."

    def __init__(self, path: Path, refs: dict, captions: dict):
        self.path, self.refs, self.captions = path, refs, captions
        self.soup = BeautifulSoup(path.read_text(), "html.parser")
        self.main = self.soup.find("main")
        self.labels, self.cited, self.problems = {}, [], []

    def fragment(self, html: str): return BeautifulSoup(html, "html.parser")
    def problem(self, what: str): self.problems.append(f"{self.path.relative_to(DOCS)}: {what}")

    def number(self):
        "Number figures, tables and equations in order; note the headings that can be referred to."
        count = dict.fromkeys(KINDS, 0)
        for node in self.main.find_all(string=re.compile(r"^\s*\{#eq-[\w-]+\}")):  # text behind a display equation
            label, rest = re.match(r"\s*\{#([\w-]+)\}(.*)", node, re.S).groups()
            node.find_previous("span", class_="math").parent["id"] = label
            node.replace_with(rest)
        for tag in self.main.find_all(id=re.compile(r"^(fig|tbl|eq|sec)-(?!.*-caption$)")):
            kind = tag["id"].split("-")[0]
            if kind == "sec":
                self.labels[tag["id"]] = (tag.find(re.compile("^h[1-6]$")) or tag).get_text()
                continue
            count[kind] += 1
            self.labels[tag["id"]] = name = f"{KINDS[kind]} {count[kind]}"
            if kind == "eq":
                tag["class"] = "numbered-equation"
                tag.append(self.fragment(f'<span class="equation-number">({count[kind]})</span>'))
                continue
            if (table := tag.find("table")) and not tag.find(["figcaption", "caption"]) and tag["id"] in self.captions:
                table.insert(0, self.soup.new_tag("caption", string=self.captions[tag["id"]]))
            if caption := tag.find(["figcaption", "caption"]): caption.insert(0, f"{name}: ")
            else: self.problem(f"{tag['id']} has no caption")

    def mathematics(self):
        "Turn TeX into MathML, which browsers draw without scripts or fonts from elsewhere."
        for caption in self.main.find_all(["figcaption", "caption"]):  # smalldocs leaves $...$ in the captions of cells
            for node in caption.find_all(string=re.compile(r"\$[^$]+\$")):
                node.replace_with(self.fragment(re.sub(r"\$([^$]+)\$", r'<span class="math inline">\\(\1\\)</span>', str(node).replace("<", "&lt;"))))
        for span in self.soup.select("span.math"):
            tex = span.get_text().strip()[2:-2]  # without \( and \) or \[ and \]
            try: mathml = TEX.convert_with_local_state(tex, displaystyle="display" in span["class"])
            except LatexError as e:
                self.problem(f"cannot read the mathematics {tex!r}: {e}")
                continue
            span.string = ""
            span.append(self.fragment(mathml))
        for tag in self.soup.select('script[src*="katex"], link[href*="katex"]'): tag.decompose()

    def link(self, key: str, inside: bool = False, where: str = "") -> str:
        "HTML for one reference: a figure, table, equation or section of this page, or a work."
        if key in self.labels: return f'<a class="quarto-xref" href="#{key}">{self.labels[key]}</a>'
        if key not in self.refs:
            self.problem(f"@{key} is neither a label of this page nor a key of refs.bib")
            return f"@{key}"
        if key not in self.cited: self.cited.append(key)
        short, year, _ = self.refs[key]
        text = f"{short} {year}" if inside else f"{short} ({year}{', ' + where if where else ''})"
        return f'<a class="citation" href="#ref-{key}">{text}</a>'

    def resolve(self, m: re.Match, strict: bool = True) -> str:
        "HTML for `@key`, `@key [Table 2]` or `[@one; @two, Table 2]`; unless strict, an unknown key leaves the text as it is."
        keys = re.findall(r"@(\w[\w:-]*\w)", m[0])
        if not strict and not all(k in self.labels or k in self.refs for k in keys): return m[0]
        if m["key"]: return self.link(m["key"], where=m["where"] or "")
        text = re.sub(r"-?@(\w[\w:-]*\w)", lambda k: self.link(k[1], inside=True), m["group"])
        return text if all(k in self.labels for k in keys) else f"({text})"

    def references(self):
        "Resolve references in the prose and list the works that the page cites."
        for node in self.main.find_all(string=REFERENCE):
            if not node.find_parent(["a", "code", "pre", "script", "style", "math"]):
                node.replace_with(self.fragment(REFERENCE.sub(self.resolve, str(node).replace("&", "&amp;").replace("<", "&lt;"))))
        if not self.cited: return
        items = "".join(f'<div class="csl-entry" id="ref-{k}">{self.refs[k][2]}</div>' for k in sorted(self.cited, key=lambda k: self.refs[k]))
        section = self.fragment(f'<section id="references" class="level2"><h2 class="anchored" data-anchor-id="references">References</h2>{items}</section>')
        self.main.select_one("#quarto-back-to-top, nav.page-navigation").insert_before(section)

    def relative(self, url: str):
        "Point nbdev's absolute links to this site (from names in backticks) at the preview's own pages."
        for a in self.soup.select(f'a[href^="{url}/"]'):
            path, _, anchor = a["href"][len(url) + 1:].partition("#")
            a["href"] = os.path.relpath(DOCS/path, self.path.parent) + (f"#{anchor}" if anchor else "")
            a.attrs.pop("target", None)

    def check(self, pages: dict[Path, "Page"], broken: dict[str, list[str]]):
        "Note in `broken` each target that does not exist and the pages that link to it; note each request to another host and each picture without a text."
        for tag in self.soup.find_all(href=True) + self.soup.find_all(src=True):
            url = urlsplit(target := tag.get("href") or tag.get("src"))
            if url.scheme in ("http", "https") and tag.name != "a": self.problem(f"needs the network: {target}")
            if url.scheme or url.netloc or not target: continue
            file = (self.path.parent/unquote(url.path)).resolve() if url.path else self.path
            if file.is_dir(): file = file/"index.html"
            if not file.exists() or url.fragment and file in pages and not pages[file].soup.find(id=unquote(url.fragment)):
                broken.setdefault(os.path.relpath(file, DOCS) + ("#" + url.fragment if url.fragment else ""), []).append(str(self.path.relative_to(DOCS)))
        for img in self.main.find_all("img"):
            if not img.get("alt", "").strip():
                code = img.find_previous("code")
                self.problem(f"a picture has no alt text (#| fig-alt): {code.get_text().splitlines()[0] if code else img['src'][:60]}")


def build() -> list[str]:
    "Make the preview in _docs/ and return what is wrong with it, one line each."
    problems, captions = render()
    url = yaml.safe_load((ROOT/"_quarto.yml").read_text())["website"]["site-url"]
    refs = bibliography(ROOT/"refs.bib")
    for css in DOCS.glob("site_libs/themes/*.css"):  # web fonts: the preview uses the system's
        css.write_text(re.sub(r"@import url\(https?:[^)]*\);", "", css.read_text()))
    for path in [*DOCS.rglob("*.html"), DOCS/"search.json", DOCS/"sitemap.xml"]:
        path.write_text(NUMBERED.sub("", path.read_text()))
        path.rename(path.with_name(NUMBERED.sub("", path.name)))
    pages = {path: Page(path, refs, captions[path]) for path in sorted(DOCS.rglob("*.html"))}
    for page in pages.values():
        page.number()
        page.mathematics()
        page.references()
        page.relative(url)
        page.path.write_text(str(page.soup))
    search = json.loads((DOCS/"search.json").read_text())
    for entry in search:
        page = pages[DOCS/entry["href"].partition("#")[0]]
        text = re.sub(r"\{#eq-[\w-]+\}", "", entry["text"])
        text = REFERENCE.sub(lambda m: page.resolve(m, strict=False), text.replace("<", "&lt;"))  # code, too, has its @names
        entry["text"] = BeautifulSoup(text, "html.parser").get_text()
    (DOCS/"search.json").write_text(json.dumps(search, ensure_ascii=False))
    broken = {}
    for page in pages.values():
        page.check(pages, broken)
        problems += page.problems
    problems += [f"broken link to {to}, from {by[0]}" + (f" and {len(set(by)) - 1} more" if len(set(by)) > 1 else "") for to, by in broken.items()]
    return sorted(set(problems))


if __name__ == "__main__":
    problems = build()
    print(*problems, sep="\n", file=sys.stderr)
    print(f"preview: {len(list(DOCS.rglob('*.html')))} pages in {DOCS}, {len(problems)} problem(s); the published site is rendered by Quarto")
    sys.exit(bool(problems))
