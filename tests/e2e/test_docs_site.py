"""The documentation: every link leads somewhere, on the site and beside the code, and it builds."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")]


def prose(path):
    """The text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    return re.sub(r"`[^`\n]*`", lambda found: found[0].strip("`").replace("](", ""), text)


def anchors(path):
    """What headings are linked to by, on the forge and on the site."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(path):
    """The links to other places of this repository, as (file, anchor)."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    return [link.partition("#")[::2] for link in found if "://" not in link]


@pytest.mark.parametrize("path", [*PAGES, *TEXTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    home = DOCS if path in PAGES else ROOT
    for file, anchor in links(path):
        target = (path.parent / file).resolve() if file else path
        assert target.is_relative_to(home), f"{file} is not a part of the site"
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert set(re.findall(r"[\w/-]+\.md", nav)) == {str(p.relative_to(DOCS)) for p in PAGES}


def test_the_site_is_built_without_a_warning(tmp_path):
    for module in ("mkdocs", "material", "mkdocstrings"):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    assert "from_pretrained" in page
    assert "accept_length" in page


def test_the_citation_names_the_paper():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for part in ("cff-version: 1.2.0", "arXiv:2609.02897", "Margins, not windows"):
        assert part in text
    version = re.search(
        r'__version__ = "(.+)"', (ROOT / "src/adaptivespec/__init__.py").read_text(encoding="utf-8")
    )
    assert version
    assert f"version: {version[1]}\n" in text
