"""A hook of mkdocs: each lesson, chapter and tutorial can be downloaded as a notebook."""

import importlib.util
import pathlib
from typing import Any

from mkdocs.structure.files import File, Files

_SPEC = importlib.util.spec_from_file_location(
    "learn_pages", pathlib.Path(__file__).resolve().parents[1] / "learn" / "pages.py"
)
PAGES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(PAGES)
SCRIPTS = {script.relative_to(PAGES.ROOT / "docs").as_posix(): script for script in PAGES.SCRIPTS + PAGES.TUTORIALS}


def on_files(files: Files, config: Any) -> Files:
    """Adds the notebooks to the site."""
    for name, script in SCRIPTS.items():
        content = PAGES.notebook(script, config.repo_url or "")
        files.append(File.generated(config, name.removesuffix(".py") + ".ipynb", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Adds a link to the pages that are made from scripts."""
    del kwargs
    name = page.file.src_uri.removesuffix(".md")
    if f"{name}.py" in SCRIPTS:
        return f"{markdown}\n[Download it as a notebook]({name.rsplit('/', 1)[1]}.ipynb).\n"
    return markdown
