"""The wheel and the sdist work in a clean virtual environment, away from the checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ISOLATION = importlib.util.find_spec("hatchling") is None
"""Without the build backend at hand, pip fetches it from the index that it is configured for."""


def run(*command: object, cwd: Path, status: int = 0) -> str:
    """Run a command without anything that could find the checkout; its output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ASSAY", "PYTEST", "VIRTUAL"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
                          check=False, timeout=900)
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it, of the files that git knows."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    # of the files as they are, whether committed or not, so that a change can be tried before it is committed
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True, text=True)
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    flags = [] if ISOLATION else ["--no-isolation"]
    run(sys.executable, "-m", "build", *flags, "--outdir", folder / "dist", source, cwd=folder)
    return folder / "dist"


def environment(folder: Path, package: Path) -> Path:
    """A virtual environment with the package, and with the libraries that it needs; its folder of commands.

    The libraries come from this environment, through a path file: they are large, and not what is tried here.
    """
    venv.create(folder, with_pip=False)
    target = next((folder / "lib").glob("python*/site-packages"))
    flags = [] if ISOLATION else ["--no-build-isolation", "--no-index"]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *flags, "--disable-pip-version-check",
        "--prefix", folder, "--ignore-installed", package, cwd=folder)
    libraries = folder / "libraries"
    libraries.mkdir()
    for place in map(Path, site.getsitepackages()):
        for entry in place.iterdir():
            # everything but ourselves, and but path files, which would lead back to the checkout
            if not entry.name.lower().startswith(("assay", "_assay", "__editable__")) and entry.suffix != ".pth":
                (libraries / entry.name).symlink_to(entry)
    (target / "libraries.pth").write_text(f"{libraries}\n")
    return folder / "bin"


def installed(folder: Path) -> str:
    return run(folder / "python", "-c", "import assay; print(assay.__file__)", cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_package_works_without_the_checkout(built: Path, tmp_path: Path, kind: str) -> None:
    package = next(built.glob(kind))
    commands = environment(tmp_path / "venv", package)
    assert str(ROOT) not in installed(commands)
    assay = commands / "assay"
    away = tmp_path / "away"
    away.mkdir()
    assert run(assay, "--version", cwd=away).startswith("assay ")
    assert "# nonfinite" in run(assay, "explain", "nonfinite", cwd=away)
    demo = run(assay, "demo", "--only", "row_max", "--device", "cpu", cwd=away)
    assert "Assay rejects 1 of 1 and accepts 1 of 1" in " ".join(demo.split())
    examples = next((tmp_path / "venv/lib").glob("python*/site-packages/assay/_examples"))
    page = away / "report.html"
    task = examples / "row_sum"
    run(assay, "verify", task / "reference.py", task / "wrong_fixed_width.py", "--device", "cpu", "--tier",
        "quick", "--html", page, "--sarif", away / "out.sarif", cwd=away, status=1)
    assert page.read_text().lower().startswith("<!doctype html>")
    run(assay, "gate", examples / "ci/kernels/scale_add", "--store", away / "store", "--tier", "quick", cwd=away)
    run(assay, "keygen", "-o", away / "key.pem", cwd=away)


@pytest.mark.slow
def test_the_wheel_holds_what_the_package_needs_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert "assay/py.typed" in names
    assert any(name.startswith("assay/_gates/") and name.endswith("nonfinite.md") for name in names)
    assert "assay/_examples/softmax/example.toml" in names
    assert "assay/_examples/ci/assay.toml" in names
    outside = [n for n in names if not n.startswith("assay/") and ".dist-info/" not in n]
    assert outside == []
    assert not [n for n in names if n.endswith((".pyc", ".sqlite")) or "/tests/" in n]
