"""The site, built strictly, and read by axe-core in a browser, wide in light and narrow in dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.__main__ import build
from docs.site.stage import DeadLinkError
from packages.environments import environment, play
from rehearsal.report.page import render
from tests.report.rehearsal import rehearse

PAGES = ("index", "stack-file", "runbook", "how-it-decides", "adr/index")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


def test_every_page_is_there_and_no_link_or_anchor_is_dead(site: Path) -> None:
    assert {f"{page}.html" for page in PAGES} <= {str(one.relative_to(site)) for one in site.rglob("*.html")}


def test_a_dead_anchor_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from docs.site import __main__ as building

    def broken(target: Path) -> None:
        target.mkdir(parents=True)
        (target / "index.md").write_text("# Here\n\n[there](#nowhere)\n", "utf-8")

    monkeypatch.setattr(building, "stage", broken)
    monkeypatch.setattr(building, "pages", lambda: {Path("README.md"): "index.md"})
    with pytest.raises(DeadLinkError, match="anchor does not exist"):
        build(tmp_path)


# What is too wide shows in any colours, and what is too pale at any width.
@pytest.mark.soak
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_axe_finds_nothing_serious(width: int, scheme: str, site: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(render(rehearse(48)), "utf-8")
    pages = [*(site / f"{page}.html" for page in PAGES), report]
    found = play(
        environment("site"),
        Path(__file__).with_name("axe.py"),
        tmp_path,
        str(width),
        scheme,
        *pages,
        seconds=900,
    )
    assert len(found) == len(pages)
    assert not {name: wrong for name, wrong in found.items() if wrong}
