"""Build of the wheel, which works without a checkout: it has archives, sample stacks and a project file.

The archives hold packages in the versions of requirements.lock, so the wheel is built in the environment of
``make setup``: ``pip wheel --no-build-isolation --no-deps .`` An installation in place
(``pip install --editable``) has none of this and uses the checkout's files.
"""

import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class WithArchives(build_py):
    """Adds what a program finds in the checkout otherwise."""

    def run(self) -> None:
        """Copy the packages, then write the archives and the samples."""
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(ROOT))
        from infra.archives import agent, functions, sdk, zip_file

        library = Path(self.build_lib).resolve()
        built = library / "infra" / "archives" / zip_file.BUILT.name
        built.mkdir(parents=True, exist_ok=True)
        for name, files in (
            ("agent", agent.sources(ROOT)),
            ("functions", functions.sources(ROOT)),
            ("sdk", sdk.layer_sources()),
        ):
            (built / f"{name}.zip").write_bytes(zip_file.pack(files))
        samples = library / "gpu_spot" / "commands" / "samples"
        shutil.copytree(ROOT / "stacks", samples / "stacks", dirs_exist_ok=True)
        shutil.copy(ROOT / "Pulumi.yaml", samples)


def readme() -> str:
    """Return README.md without images and links to files, which an index does not have; their text stays."""
    text = (ROOT / "README.md").read_text("utf-8")
    return re.sub(r"(!?)\[([^]]*)\]\((?!https://)[^)]*\)", lambda m: "" if m[1] else m[2], text)


setup(
    cmdclass={"build_py": WithArchives},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
