"""What `assay.toml` may say, and which pairs follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.repository.config import Settings, load_settings
from assay.repository.pairs import chosen, find_pairs, find_roots
from assay.repository.policy import load_policy

from .made import write


def settings(root: Path, text: str) -> Settings:
    write(root, {"assay.toml": text})
    return load_settings(root / "assay.toml")


def pairs(root: Path, text: str) -> list[tuple[str, str, str | None, bool]]:
    found, _ = find_pairs(root, settings(root, text))
    return [(p.reference, p.candidate, p.contract, p.release) for p in found]


TWO = {"k/a/reference.py": "", "k/a/kernel.py": "", "k/a/kernel_2.py": "", "k/b/reference.py": "",
       "k/b/kernel.py": ""}


def test_a_glob_pairs_each_reference_with_the_candidates_beside_it(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    assert pairs(tmp_path, '[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel*.py"\n') == [
        ("k/a/reference.py", "k/a/kernel.py", None, False),
        ("k/a/reference.py", "k/a/kernel_2.py", None, False),
        ("k/b/reference.py", "k/b/kernel.py", None, False),
    ]


def test_the_stem_pairs_files_of_two_folders(tmp_path: Path) -> None:
    write(tmp_path, {"ref/sum.py": "", "ref/sum_all.py": "", "gen/sum.v1.py": "", "gen/sum_all.v1.py": ""})
    assert pairs(tmp_path, '[[pairs]]\nreference = "ref/*.py"\ncandidate = "gen/{stem}.v*.py"\n') == [
        ("ref/sum.py", "gen/sum.v1.py", None, False), ("ref/sum_all.py", "gen/sum_all.v1.py", None, False)]


def test_a_folder_s_own_brackets_are_no_glob(tmp_path: Path) -> None:
    write(tmp_path, {"k/[ab]/reference.py": "", "k/[ab]/kernel.py": "", "k/a/kernel.py": ""})
    assert pairs(tmp_path, '[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel*.py"\n') == [
        ("k/[ab]/reference.py", "k/[ab]/kernel.py", None, False)]


def test_a_later_table_says_more_about_a_pair(tmp_path: Path) -> None:
    write(tmp_path, {**TWO, "k/b/contract.toml": ""})
    text = ('[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel.py"\n'
            '[[pairs]]\nreference = "k/b/reference.py"\ncandidate = "k/b/kernel.py"\n'
            'contract = "{dir}/contract.toml"\nrelease = true\n')
    assert pairs(tmp_path, text) == [("k/a/reference.py", "k/a/kernel.py", None, False),
                                     ("k/b/reference.py", "k/b/kernel.py", "k/b/contract.toml", True)]


def test_excluded_candidates_and_the_reference_itself_are_none(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    text = '[[pairs]]\nreference = "k/a/reference.py"\ncandidate = "{dir}/*.py"\nexclude = ["*/kernel_2.py"]\n'
    assert pairs(tmp_path, text) == [("k/a/reference.py", "k/a/kernel.py", None, False)]


def test_a_reference_without_a_candidate_is_said(tmp_path: Path) -> None:
    write(tmp_path, {**TWO, "k/c/reference.py": ""})
    found, notes = find_pairs(tmp_path, settings(
        tmp_path, '[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel.py"\n'))
    assert len(found) == 2
    assert notes == ["k/c/reference.py: no candidate matches `{dir}/kernel.py`"]


@pytest.mark.parametrize(("text", "words"), [
    ("", "pairs"),
    ("pairs = []", "pairs"),
    ("[[pairs]]\nreferences = 'a'\ncandidate = 'b'\n", "did you mean `reference`"),
    ("[[pairs]]\nreference = 'r.py'\ncandidate = 'c.py'\nrelese = true\n", "did you mean `release`"),
    ("[[pairs]]\nreference = 'r.py'\ncandidate = 'c.py'\n[sample]\nshares = 1\n", "did you mean `share`"),
    ("[[pairs]]\nreference = 'r.py'\ncandidate = 'c.py'\n[sample]\nshare = 1.5\n", "sample.share"),
    ("[[pairs]]\nreference = 'r.py'\ncandidate = 'c.py'\n[battery]\ndevice = 'gpu'\n", "battery.device"),
    ("[[pairs]]\nreference = '../r.py'\ncandidate = 'c.py'\n", "inside the repository"),
    ("[[pairs]]\nreference = '/r.py'\ncandidate = 'c.py'\n", "inside the repository"),
    ("[[pairs]\n", "not valid TOML"),
])
def test_what_is_wrong_in_the_settings_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as fault:
        settings(tmp_path, text)
    assert words in str(fault.value)
    assert str(tmp_path / "assay.toml") in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(("table", "words"), [
    ('reference = "k/x/reference.py"\ncandidate = "k/a/kernel.py"', "no file matches the reference"),
    ('reference = "k/a/reference.py"\ncandidate = "{dir}/kernels.py"', "no file matches the candidate"),
    ('reference = "k/a/reference.py"\ncandidate = "{dir}/kernel.py"\ncontract = "{dir}/c.toml"', "no such contract"),
])
def test_a_table_that_matches_nothing_is_an_error(tmp_path: Path, table: str, words: str) -> None:
    write(tmp_path, TWO)
    with pytest.raises(InputError, match=words) as fault:
        find_pairs(tmp_path, settings(tmp_path, f"[[pairs]]\n{table}\n"))
    assert "pairs[1]" in str(fault.value)


def test_paths_choose_pairs(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    found, _ = find_pairs(tmp_path, settings(
        tmp_path, '[[pairs]]\nreference = "k/*/reference.py"\ncandidate = "{dir}/kernel*.py"\n'))

    def names(*paths: str) -> list[str]:
        roots, _ = find_roots([tmp_path / p for p in paths])
        assert {root for root, _ in roots} == {tmp_path.resolve()}
        return [p.name for p in chosen(found, [path for _, path in roots])]

    everything = ["k/a/kernel", "k/a/kernel_2", "k/b/kernel"]
    assert names(".") == names("assay.toml") == names("k") == everything
    assert names("k/a") == names("k/a/reference.py") == everything[:2]
    assert names("k/a/kernel_2.py", "k/b") == everything[1:]


def test_a_folder_stands_for_the_roots_below_it_and_a_stray_file_for_none(tmp_path: Path) -> None:
    write(tmp_path, {"one/assay.toml": "", "two/deep/assay.toml": "", "stray.py": ""})
    roots, notes = find_roots([tmp_path, tmp_path / "stray.py"])
    assert [root.relative_to(tmp_path.resolve()).as_posix() for root, _ in roots] == ["one", "two/deep"]
    assert len(notes) == 1
    assert "stray.py" in notes[0]


@pytest.mark.parametrize(("path", "words"), [("gone", "no such file"), (".", "no assay.toml here or above")])
def test_a_path_that_leads_to_nothing_is_an_error(tmp_path: Path, path: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_roots([tmp_path / path])


@pytest.mark.parametrize(("text", "words"), [
    ("blocks = 'all'", "did you mean `block`"),
    ("block = ['nonfinit']", "did you mean `nonfinite`"),
    ("required = ['shape']", "did you mean `shapes`"),
    ("gpu = 'yes'", "gpu"),
    ("[[waivers]]\npair = '*'\ngate = 'nonfinite'\nuntil = 2030-01-01\n", "because"),
    ("[[waivers]]\npair = '*'\ngate = 'nonfinite'\nbecause = 'x'\n", "until"),
    ("[[waivers]]\npair = '*'\ngate = 'nan'\nbecause = 'x'\nuntil = 2030-01-01\n", "did you mean"),
])
def test_what_is_wrong_in_a_policy_is_named(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, {"policy.toml": text})
    with pytest.raises(InputError) as fault:
        load_policy(tmp_path / "policy.toml")
    assert words in str(fault.value)
