"""Is the public Rust API what docs/public-api lists? `--write` writes the lists; review their diff.

default.txt has the API without features, and each other file what its feature adds. A feature takes nothing away.
The JSON of rustdoc is unstable: with a compiler whose JSON the tool does not read, the check is left out, and says so.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ROOT / "docs" / "public-api"
# The format of rustdoc's JSON that the Makefile's version of cargo-public-api reads.
FORMAT = 57
# Whether a type may cross threads is API. The compiler's other automatic traits change with the compiler.
AUTOMATIC = re.compile(r"^impl(?:<.*>)? !?core::(?:marker::(?:Freeze|Unpin|UnsafeUnpin)|panic::unwind_safe::\w+) for ")


def left_out(why):
    print(f"LEFT OUT: the public API against docs/public-api ({why})")
    sys.exit()


def package():
    """The folder that cargo builds in, and what each feature of the crate enables."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    features = next(crate["features"] for crate in metadata["packages"] if crate["name"] == "arrow-dlpack")
    del features["default"]
    return Path(metadata["target_directory"]), features


def sets(features):
    """Each file with the features of its API: those of the file before, and the one of its name."""
    order = sorted(features, key=lambda name: (not features.keys().isdisjoint(features[name]), name))
    return [("default", [])] + [(name, order[: at + 1]) for at, name in enumerate(order)]


def written(chain, folder):
    """The file of rustdoc's JSON for each set of features.

    cargo checks the dependencies once, with all features, and runs this file as rustdoc, with `--rustdoc` first.
    """
    program = folder / "rustdoc-json"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__, "--rustdoc"])} "$@"\n')
    program.chmod(0o755)
    plan = {str(folder / "public-api" / name): features for name, features in chain}
    files = [Path(out) / "arrow_dlpack.json" for out in plan]
    for file in files:
        file.unlink(missing_ok=True)
    # A version that no run had: else cargo takes what the run before has written, and calls nothing.
    options = ["--crate-version", f"0.0.{time.time_ns()}"]
    command = ["cargo", "rustdoc", "--quiet", "--locked", "--package", "arrow-dlpack", "--lib"]
    command += ["--features", ",".join(chain[-1][1]), "--", *options]
    added = {"RUSTDOC": str(program), "PUBLIC_API_SETS": json.dumps(plan)}
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **added})
    return files


def rustdoc(arguments):
    """Runs rustdoc as cargo would, in cargo's environment, but for the JSON of each set of features."""
    if "--crate-name" not in arguments:
        os.execvp("rustdoc", ["rustdoc", *arguments])
    # If cargo saw the variable that allows them, it would build dependencies again.
    unstable = ["-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}

    def run(out, features):
        command = ["rustdoc", *with_features(arguments, features), *unstable, "-o", out]
        # The file descriptors of cargo's job server stay open.
        return subprocess.run(command, check=False, env=environment, close_fds=False).returncode

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda each: run(*each), json.loads(os.environ["PUBLIC_API_SETS"]).items()))
    # A signal that ended one is a negative number.
    sys.exit(any(codes))


def with_features(arguments, features):
    """cargo's arguments without its folder, with these features. Unused dependencies add nothing to an API."""
    kept, words = [], iter(arguments)
    for word in words:
        if word in ("-o", "--out-dir"):
            next(words)
        elif word == "--cfg":
            value = next(words)
            named = re.fullmatch('feature="(.*)"', value)
            kept += [] if named and named[1] not in features else [word, value]
        else:
            kept.append(word)
    return kept


def listed(file, program):
    """The API in rustdoc's JSON, a line for each item."""
    found = json.loads(file.read_bytes())["format_version"]
    if found != FORMAT:
        left_out(f"rustdoc's JSON has format {found}, and cargo-public-api reads {FORMAT}")
    command = [program, "--rustdoc-json", file, "--omit", "blanket-impls", "--color", "never"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    # What two modules export is listed twice.
    return list(dict.fromkeys(line for line in lines if not AUTOMATIC.match(line)))


def differences(known, lines):
    """The lines that went, then the lines that came."""
    old, new = set(known), set(lines)
    return [*(f"- {line}" for line in known if line not in new), *(f"+ {line}" for line in lines if line not in old)]


def compare(name, lines, write):
    path = FILES / f"{name}.txt"
    if write:
        path.write_text("".join(f"{line}\n" for line in lines))
        return []
    changes = differences(path.read_text().splitlines() if path.exists() else [], lines)
    return [f"docs/public-api/{name}.txt:", *changes] if changes else []


def check_the_check():
    assert differences(["a", "b"], ["b", "c"]) == ["- a", "+ c"]
    assert not differences(["a"], ["a"])
    assert AUTOMATIC.match("impl<T> core::marker::Unpin for arrow_dlpack::Bits<T>")
    assert AUTOMATIC.match("impl !core::panic::unwind_safe::UnwindSafe for arrow_dlpack::Tensor")
    assert not AUTOMATIC.match("impl !core::marker::Send for arrow_dlpack::Tensor")
    chain = sets({"cuda": ["dep:driver"], "arrow": ["python", "dep:arrow"], "python": ["dep:python"]})
    assert chain[0] == ("default", [])
    assert chain[-1] == ("arrow", ["cuda", "python", "arrow"])
    cargos = ["src/lib.rs", "-o", "doc", "--cfg", 'feature="cuda"', "--cfg", 'feature="arrow"', "--cfg", "other"]
    assert with_features(cargos, ["cuda"]) == ["src/lib.rs", "--cfg", 'feature="cuda"', "--cfg", "other"]


def main():
    check_the_check()
    program, write = Path(sys.argv[1]).resolve(), "--write" in sys.argv
    if not program.exists():
        left_out("cargo-public-api is not installed: the error is above")
    folder, every = package()
    FILES.mkdir(exist_ok=True)
    chain, before, faults = sets(every), [], []
    for (name, _), file in zip(chain, written(chain, folder), strict=True):
        lines = listed(file, program)
        seen, now = set(before), set(lines)
        faults += [f"the feature {name} takes away: {line}" for line in before if line not in now]
        faults += compare(name, [line for line in lines if line not in seen], write)
        before = lines
    strays = {path.stem for path in FILES.glob("*.txt")} - {name for name, _ in chain}
    faults += [f"docs/public-api/{name}.txt: there is no such feature" for name in sorted(strays)]
    print(f"the public API of {len(chain)} sets of features {'written' if write else 'compared'}")
    if faults:
        faults.append("If the change is meant: run `make public-api`, and review the diff of docs/public-api.")
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    rustdoc(sys.argv[2:]) if sys.argv[1] == "--rustdoc" else main()
