"""The documentation is consistent: its links, its terms, its pictures, the names of metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from contracts import names
from docs.site import pictures
from docs.site.stage import DeadLinkError, pages, stage
from research.market import capacity
from research.parts import page, scenarios
from research.simulation.comparison.contenders import everyone

ROOT = Path(__file__).resolve().parents[2]
SERVICES: Final = ROOT / "docs" / "services.md"
# Source: https://aws.amazon.com/blogs/machine-learning/monitoring-gpu-utilization-with-amazon-cloudwatch/ and
# the Deep Learning AMI guide, "Monitor GPUs with CloudWatch". "Memory Usage" is NVML's utilization of the
# memory controller, not memory in use.
SAME_MEASURE: Final = {
    "GPU Usage": names.METRIC_GPU_UTILIZATION,
    "Memory Usage": names.METRIC_GPU_MEMORY_UTILIZATION,
    "Power Usage (Watts)": names.METRIC_GPU_POWER,
    "Temperature (C)": names.METRIC_GPU_TEMPERATURE,
}


def test_the_table_has_the_names_of_both() -> None:
    page = SERVICES.read_text("utf-8")
    section = page.partition("\n## Dashboard and metrics\n")[2].partition("\n## ")[0]
    before, _, table = section.partition("| `gpumon` |")
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", table, re.M))
    assert rows == SAME_MEASURE
    words = before.rpartition("\n\n")[0].rpartition("\n\n")[2]
    [namespace, *_] = [text for text in re.findall(r"`([^`]+)`", words) if "/" in text]
    assert namespace == names.INSTANCE_NAMESPACE
    assert "by `group` and `stack`" in words


SHOWING = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("source", pictures.sources(), ids=lambda path: path.stem)
def test_a_picture_is_up_to_date_and_shown(source: Path) -> None:
    drawn = pictures.picture(source)
    assert drawn.read_text("utf-8").startswith(pictures.mark(source)), "run: make pictures"
    assert any(f"img/{drawn.name}" in page.read_text("utf-8") for page in SHOWING)


def test_a_changed_text_is_noticed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.mmd", tmp_path / "b" / "a.mmd"
    second.parent.mkdir()
    first.write_text("flowchart LR\n a --> b\n", "utf-8")
    second.write_text("flowchart LR\n a --> c\n", "utf-8")
    assert pictures.mark(first) != pictures.mark(second)


GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"^\| \*\*([^*]+)\*\* \|", GLOSSARY.read_text("utf-8"), re.M)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in (ROOT / "docs").glob("*.md") if p != GLOSSARY),
]
TEXT = "\n".join(page.read_text("utf-8").casefold() for page in PAGES)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used(term: str) -> None:
    assert re.search(rf"\b{re.escape(term.casefold())}(s|es)?\b", TEXT), f"no page uses {term!r}"


def test_no_term_stands_twice_and_each_has_one_sentence() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \| (.+) \|$", GLOSSARY.read_text("utf-8"), re.M)
    assert len(rows) == len(TERMS) == len(set(TERMS)) >= 35
    assert not [term for term, text in rows if re.search(r"\. [A-Z]", text) or not text.endswith((".", "`."))]


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


@pytest.mark.parametrize("name", page.QUOTING)
def test_a_quoted_figure_is_the_benchmarks(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert text.count("<!--=") == text.count("<!--/-->") == len(page._QUOTED.findall(text)) >= 5
    assert page.quoted(ROOT, text) == text, "a figure is stale: its benchmark's page has another"


def test_only_checked_pages_quote_figures() -> None:
    quoting = {str(path.relative_to(ROOT)) for path in pages(ROOT) if "<!--=" in path.read_text("utf-8")}
    assert quoting == set(page.QUOTING)


def test_the_page_has_the_rows_that_the_benchmark_writes() -> None:
    """A renamed policy is not a row any more, so that a mark which names it fails."""
    text = (ROOT / "research/capacity.md").read_text("utf-8")
    of_bench = text.partition("<!-- capacity: begin -->")[2].partition("<!-- capacity: end -->")[0]
    rows = [cells[0] for cells in page._rows(of_bench) if cells and cells[0] != "---"]
    markets = [name.replace(" ", "_") for name, *_ in scenarios._README]
    policies = [contender.name for contender in everyone()]
    ours = capacity._OURS
    rivals = [name for name in policies if not name.startswith((ours, "on-demand", "spot-only"))]
    assert rows == ["market", *markets, "policy", *policies, "rival", *rivals, ours]


def test_a_stale_quotation_is_rewritten_and_one_without_a_cell_is_an_error(tmp_path: Path) -> None:
    stale = "<!--=capacity:expected-cost:cost_÷_bound-->9<!--/-->"
    (tmp_path / "README.md").write_text(stale)
    new = "| policy | cost ÷ bound |\n| --- | --: |\n| **expected-cost** | 1.02 |\n"
    page.replace_part(tmp_path, "capacity", new)
    assert (tmp_path / "README.md").read_text() == stale.replace("9", "1.02")
    with pytest.raises(LookupError, match="no row 'expected-cost' with a column 'price'"):
        page.quoted(tmp_path, stale.replace("cost_÷_bound", "price"))
