"""Certificates and evidence from the command line, of real verdicts."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.doubling import REFERENCE, RIGHT

from assay import cli
from assay.evidence import dsse, tensors
from assay.evidence.certificate import Sources
from assay.evidence.dossier import dossier, zipped
from assay.report.model import Report

WRONG = RIGHT.replace("x + x", "x * 2.001")
QUICK = ("--device", "cpu", "--tier", "quick")


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, said.out + said.err

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"reference": REFERENCE, "right": RIGHT, "wrong": WRONG}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    dsse.make_keys(tmp_path / "k.pem", tmp_path / "k.pub.pem")
    return tmp_path


def test_a_bundle_holds_a_certificate_and_what_others_failed_on(
        assay: Callable[..., tuple[int, str]], here: Path) -> None:
    assert assay("verify", "reference.py", "wrong.py", *QUICK, "--only", "values", "--store", "store")[0] == 1
    status, said = assay("evidence", "reference.py", "right.py", "-o", "e.zip", "--key", "k.pem", "--store", "store",
                         *QUICK)
    assert status == 0, said
    with zipfile.ZipFile("e.zip") as bundle:
        files = {name: bundle.read(name) for name in bundle.namelist()}
        assert {item.date_time for item in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert list(files) == sorted(files)
    sums = dict(reversed(line.split("  ")) for line in files["SHA256SUMS"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != "SHA256SUMS"}
    assert files["sources/candidate/right.py"].decode() == RIGHT
    assert files["public-key.pem"] == (here / "k.pub.pem").read_bytes()
    assert Report.model_validate_json(files["report.json"]).ok
    readme = files["README.md"].decode()
    for words in ("signed", "## Where it has to be right", "NaN: propagate", "Repeatability", "streams", "torch: ",
                  "violation rate"):
        assert words in readme
    failures = [name for name in files if name.startswith("failures/")]
    record = json.loads(files[next(name for name in failures if name.endswith("finding.json"))])
    assert record["candidate"] == "wrong"
    assert record["finding"]["slug"] == "values"
    kept = tensors.decode(files[next(name for name in failures if name.endswith(".safetensors"))])
    assert any(name.startswith("input") for name in kept)

    # the certificate of the bundle, with its files and with others
    (here / "c.json").write_bytes(files["certificate.json"])
    check = ("verify-certificate", "c.json", "--public-key", "k.pub.pem", "--reference", "reference.py", "--candidate")
    status, said = assay(*check, "right.py")
    assert (status, "the candidate is the certified file" in said) == (0, True), said
    (here / "right.py").write_text(RIGHT + "# tuned\n")
    status, said = assay(*check, "right.py")
    assert (status, said) == (1, "not valid: the candidate is not the certified file\n")
    dsse.make_keys(here / "other.pem", here / "other.pub.pem")
    assert assay("verify-certificate", "c.json", "--public-key", "other.pub.pem")[0] == 1
    statement = dsse.opened(files["certificate.json"], dsse.public_key(here / "k.pub.pem"))
    claim = statement["predicate"]["statistics"]
    assert claim["violationRateAtMost"] == pytest.approx(1 - 0.05 ** (1 / claim["randomProbesPassed"]))
    assert statement["predicate"]["seed"]["drawnHere"] is True

    # a report that was made elsewhere is made again, and has to come out the same; an edited one does not
    (here / "right.py").write_text(RIGHT)
    edited = json.loads(files["report.json"])
    streams = next(gate for gate in edited["gates"] if gate["slug"] == "streams")
    assert streams["outcome"] == "not_applicable"
    streams["outcome"] = "pass"
    (here / "edited.json").write_text(json.dumps(edited))
    status, said = assay("certify", "reference.py", "right.py", "--key", "k.pem", "-o", "d.json", "--report",
                         "edited.json", *QUICK)
    assert status == 1
    assert "does not come out again: it differs in gate streams" in " ".join(said.split())
    assert not (here / "d.json").exists()


@pytest.mark.slow
def test_a_report_that_comes_out_again_is_certified_without_a_claim(
        assay: Callable[..., tuple[int, str]], here: Path) -> None:
    assert assay("verify", "reference.py", "right.py", *QUICK, "--json", "r.json", "--no-store")[0] == 0
    status, said = assay("certify", "reference.py", "right.py", "--key", "k.pem", "-o", "c.json", "--report", "r.json",
                         *QUICK)
    assert status == 0, said
    assert "without a statistical claim" in said
    statement = dsse.opened((here / "c.json").read_bytes(), dsse.public_key(here / "k.pub.pem"))
    assert statement["predicate"]["statistics"] is None
    assert assay("verify-certificate", "c.json", "--public-key", "k.pub.pem", "--candidate", "right.py")[0] == 0


@pytest.mark.slow
def test_a_rejected_candidate_gets_no_certificate(assay: Callable[..., tuple[int, str]], here: Path) -> None:
    status, said = assay("certify", "reference.py", "wrong.py", "--key", "k.pem", "-o", "c.json", *QUICK)
    assert status == 1
    assert "refused: the candidate is rejected (values" in said
    assert not (here / "c.json").exists()
    status, said = assay("evidence", "reference.py", "wrong.py", "--key", "k.pem", "-o", "e.zip", *QUICK)
    assert status == 1
    with zipfile.ZipFile("e.zip") as bundle:
        assert "certificate.json" not in bundle.namelist()
        assert "not certified" in bundle.read("README.md").decode()


@pytest.mark.slow
def test_the_binaries_of_a_kernel_are_the_same_each_time(assay: Callable[..., tuple[int, str]], here: Path) -> None:
    from assay import pages

    task = pages.examples() / "row_sum"
    found = []
    for name in ("a", "b"):
        assay("verify", task / "reference.py", task / "right.py", "--device", "cpu", "--only", "resources",
              "--no-store", "--json", f"{name}.json")
        found.append(Report.model_validate_json((here / f"{name}.json").read_bytes()).candidate.binaries)
    assert found[0] == found[1]
    assert {binary.kernel for binary in found[0]} == {"row_sum_kernel"}


@pytest.mark.parametrize(("arguments", "words"), [
    (("certify", "reference.py", "right.py", "--key", "gone.pem", "-o", "c.json"), "cannot read the key"),
    (("certify", "reference.py", "right.py", "--key", "reference.py", "-o", "c.json"), "no private key"),
    (("certify", "gone.py", "right.py", "--key", "k.pem", "-o", "c.json"), "cannot read the reference"),
    (("certify", "reference.py", "right.py", "--key", "k.pem", "-o", "gone/c.json"), "--output gone/c.json"),
    (("verify-certificate", "gone.json", "--public-key", "k.pub.pem"), "cannot read it"),
    (("verify-certificate", "right.py", "--public-key", "k.pem"), "no public key"),
    (("evidence", "reference.py", "right.py", "-o", "gone/e.zip"), "--output gone/e.zip"),
    (("keygen", "-o", "k.pem"), "never replaced"),
])
def test_bad_input_is_one_line(assay: Callable[..., tuple[int, str]], here: Path, arguments: tuple[str, ...],
                               words: str) -> None:
    status, said = assay(*arguments)
    assert status == 2
    assert words in said.splitlines()[-1]


def test_what_is_no_certificate_is_not_valid(assay: Callable[..., tuple[int, str]], here: Path) -> None:
    assert assay("verify-certificate", "right.py", "--public-key", "k.pub.pem") == (
        1, "not valid: it is no signed envelope\n")


def test_a_zip_has_the_same_bytes_for_the_same_files() -> None:
    files = {"b/c.txt": b"2", "a.txt": b"1" * 1000}
    assert zipped(files) == zipped(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(zipped(files))) as archive:
        assert archive.namelist() == ["a.txt", "b/c.txt"]
        assert archive.read("a.txt") == b"1" * 1000


def test_what_a_candidate_names_itself_is_harmless_in_the_readme() -> None:
    from tests.evidence.test_certificate import verdict

    report = verdict()
    names = Sources(("r.py", b""), ("<script>|`x`.py", b""))
    hostile = report.model_copy(update={"candidate": report.candidate.model_copy(update={"kernels": ("<b>`|",)})})
    with zipfile.ZipFile(io.BytesIO(dossier(hostile, names))) as bundle:
        readme = bundle.read("README.md").decode()
    assert "<script>" not in readme
    assert "<b>" not in readme
