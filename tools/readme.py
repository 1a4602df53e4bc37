"Write README.md from nbs/index.ipynb; with --check, only say whether it is up to date."
import json, posixpath, re, sys
from pathlib import Path
import yaml

ROOT = Path(__file__).parent.parent
SITE = "https://robustness-nb.github.io/robustness_nb/nbs/index.html"
NOTICE = "<!-- Written by tools/readme.py from nbs/index.ipynb: edit the notebook. -->"
FENCE = re.compile(r"(^```.*?^```)", re.S | re.M)
LINK = re.compile(r"(\]\(|(?:href|src)=\")(?![a-z]+:|#|/)([^)\s\"]+)")
CITATION = re.compile(r" ?\[@[^\]]+\]")
ATTRIBUTES = re.compile(r"(\]\([^)]*\))\{[^}]*\}")
CALLOUT = re.compile(r"^:::+ *\{\.callout-(\w+).*?\}\n(.*?)^:::+$", re.S | re.M)

def alert(callout: re.Match) -> str:
    "A Quarto callout in GitHub's form."
    return f"> [!{callout[1].upper()}]\n" + "\n".join(f"> {line}".rstrip() for line in callout[2].strip().splitlines())

def github(text: str) -> str:
    "Markdown of the site as GitHub reads it: callouts, no citations or attributes, and links that start in the root; code stays as it is."
    def rewrite(part):
        part = ATTRIBUTES.sub(r"\1", CITATION.sub("", part))
        return LINK.sub(lambda m: m[1] + posixpath.normpath(posixpath.join("nbs", m[2])), part)
    return "".join(part if i % 2 else rewrite(part) for i, part in enumerate(FENCE.split(CALLOUT.sub(alert, text))))

def fenced(text: str, language: str = "") -> str: return f"```{language}\n{text.strip()}\n```" if text.strip() else ""

def front_matter(source: str) -> str:
    "Title and description of a raw cell, as the heading that they make on the site."
    match = re.fullmatch(r"---\n(.*?)\n---\s*", source, re.S)
    meta = yaml.safe_load(match[1]) if match else {}
    return "\n\n".join(mark + meta[key] for key, mark in (("title", "# "), ("description", "> ")) if key in meta)

def output(out: dict, options: dict) -> str:
    "What a cell shows. A figure becomes a line that leads to the site."
    data = {kind: "".join(value) for kind, value in out.get("data", {}).items() if isinstance(value, (str, list))}
    if any(kind.startswith("image/") for kind in data): return f"*{options.get('fig-cap', 'Figure').rstrip('.')}: see [the site]({SITE}).*"
    if "text/markdown" in data: return github(data["text/markdown"])
    return fenced("".join(out.get("text", data.get("text/plain", ""))))

def code(cell: dict, source: str) -> list: # of markdown parts
    "Source and outputs, as far as the site shows them."
    options = {key: value.strip("\"'") for key, value in re.findall(r"^#\| *([\w-]+):? *(.*)$", source, re.M)}
    if {"hide", "export", "exporti", "default_exp"} & options.keys() or options.get("include") == "false": return []
    shown = "" if options.get("echo") == "false" else fenced(re.sub(r"^#\|.*\n?", "", source, flags=re.M), "python")
    return [shown, *(output(out, options) for out in cell["outputs"] if options.get("output") != "false")]

def readme(path: Path = ROOT/"nbs/index.ipynb") -> str:
    "README.md as it should be."
    parts = [NOTICE]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "raw": parts.append(front_matter(source))
        elif cell["cell_type"] == "code": parts += code(cell, source)
        else:
            if source.startswith("# "): source = re.sub(r"^- [\w-]+: .*\n?", "", source, flags=re.M) # nbdev's front matter
            parts.append(github(source))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

if __name__ == "__main__":
    target, text = ROOT/"README.md", readme()
    if "--check" not in sys.argv[1:]: target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        sys.exit("README.md differs from nbs/index.ipynb: run .venv/bin/python tools/readme.py")
