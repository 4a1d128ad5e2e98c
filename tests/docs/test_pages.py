"""The documentation is consistent: its links, its commands, its reference pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.stage import DeadLinkError, pages, stage


def test_every_link_of_every_page_leads_to_a_file(tmp_path: Path) -> None:
    stage(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(pages().values())


def test_links_follow_their_pages_and_code_is_left_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "docs" / "deep").mkdir(parents=True)
    (tree / "packages" / "worker").mkdir(parents=True)
    (tree / "README.md").write_text(
        "[a](docs/a.md#x) [file](b.yaml) [`w`](packages/worker/) `[no](link)`\n", "utf-8"
    )
    (tree / "docs" / "a.md").write_text("# x\n```\n[no](link)\n```\n[up](../README.md)\n", "utf-8")
    (tree / "docs" / "deep" / "c.md").write_text(
        "[a](../a.md) [w](../../packages/worker/README.md)\n", "utf-8"
    )
    (tree / "packages" / "worker" / "README.md").write_text(
        "[b](../../b.yaml) [folder](../../docs)\n", "utf-8"
    )
    (tree / "b.yaml").write_text("b: 1\n", "utf-8")
    out = tmp_path / "out"
    stage(out, tree)
    assert (
        out / "index.md"
    ).read_text() == "[a](a.md#x) [file](b.yaml) [`w`](packages/worker/README.md) `[no](link)`\n"
    assert (out / "a.md").read_text() == "# x\n```\n[no](link)\n```\n[up](index.md)\n"
    assert (out / "deep" / "c.md").read_text() == "[a](../a.md) [w](../packages/worker/README.md)\n"
    assert (out / "packages" / "worker" / "README.md").read_text() == "[b](../../b.yaml) folder\n"
    (tree / "b.yaml").unlink()
    with pytest.raises(DeadLinkError, match=r"README.md: b.yaml\npackages/worker/README.md: ../../b.yaml"):
        stage(out, tree)
