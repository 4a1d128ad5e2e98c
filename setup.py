"""What pyproject.toml cannot say: gpu-spot is installed in place, from a checkout, and has no wheel."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import SetupError


class NoWheel(bdist_wheel):
    """Refuses: the program packs functions and agent from the checkout's files and its lock.

    Installing in place (``pip install --editable``) does not come here.
    """

    def run(self) -> None:
        """End with what to do instead."""
        raise SetupError(
            "there is no wheel of gpu-spot, it is used from a checkout: make setup, or in another project's "
            "environment pip install --editable CHECKOUT (templates/gpu-spot, docs/components.md)"
        )


setup(cmdclass={"bdist_wheel": NoWheel})
