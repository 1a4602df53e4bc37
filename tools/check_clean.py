"Exit 1, naming the files, if nbdev-clean and nbdev-export change anything: notebooks are clean, and the modules are theirs."
import hashlib, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
WATCHED = ["nbs", "robustness_nb", "pyproject.toml", "settings.ini", "llms.txt"]

def state(root: Path = ROOT) -> dict: # path: digest of its bytes
    "Digest of every file that nbdev could write."
    files = [f for w in WATCHED for f in [root/w, *(root/w).rglob("*")]]
    return {str(f.relative_to(root)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files
        if f.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(f.parts)}

def main() -> int:
    before = state()
    for command in "nbdev-clean", "nbdev-export": subprocess.run([BIN/command], cwd=ROOT, check=True)
    after = state()
    changed = sorted(f for f in before.keys() | after.keys() if before.get(f) != after.get(f))
    if changed: print("nbdev-clean or nbdev-export changed:", *changed, sep="\n  ")
    if changed: print("They are in order now: look at them, and commit them.")
    return bool(changed)

if __name__ == "__main__": sys.exit(main())
