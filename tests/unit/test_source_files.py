"""Tests of which files a tools entry of a team consists of, as `cadre up --reload` watches them."""

from pathlib import Path

import pytest

from cadre.local.processes import source_files

FILES = {
    "tools.py": "import json, near\nfrom pkg.inner import deep\nfrom pkg import other\n",
    "near.py": "def late():\n    import tools, far\n",
    "far.py": "",
    "unrelated.py": "import near\n",
    "broken.py": "def (\n",
    "pkg/__init__.py": "",
    "pkg/inner.py": "from . import sibling\nfrom .sub.leaf import x\n",
    "pkg/sibling.py": "from .. import far\nfrom ..... import nowhere\n",
    "pkg/other.py": "",
    "pkg/sub/leaf.py": "from ..other import y\n",
    "pkg/unused.py": "",
}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "{folder}/tools.py:one",
            "tools near far pkg/__init__ pkg/inner pkg/sibling pkg/sub/leaf pkg/other",
        ),
        ("pkg.inner", "far pkg/__init__ pkg/inner pkg/sibling pkg/sub/leaf pkg/other"),
        ("near:late", "near tools far pkg/__init__ pkg/inner pkg/sibling pkg/sub/leaf pkg/other"),
        ("{folder}/broken.py", "broken"),
        ("{folder}/gone.py", "gone"),
        ("cadre_standard_tools.files", ""),
    ],
)
def test_the_files_of_an_entry(tmp_path: Path, entry: str, expected: str) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = source_files(entry.format(folder=tmp_path), tmp_path)
    names = {str(path.relative_to(tmp_path).with_suffix("")) for path in found}
    assert (names, len(found)) == (set(expected.split()), len(names))
