"""Build configuration: gpu-spot is installed in place, from a checkout, and has no wheel."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import SetupError


class NoWheel(bdist_wheel):
    """A command that fails: the program packs functions and agent from the files and the lock of a checkout.

    ``pip install --editable`` does not run it.
    """

    def run(self) -> None:
        """Fail with instructions."""
        raise SetupError(
            "gpu-spot has no wheel and is installed from a checkout: run make setup, or in the environment "
            "of "
            "another project pip install --editable CHECKOUT (templates/gpu-spot, docs/components.md)"
        )


setup(cmdclass={"bdist_wheel": NoWheel})
