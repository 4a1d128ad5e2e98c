"""The workflows: who writes, who has credentials, what runs at a time; zizmor finds nothing unsafe."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.infra.declared import ROOT
from tests.review.test_scripts import steps, workflow


def test_jobs_with_write_permission_run_no_code_of_the_pull_request() -> None:
    jobs = workflow("preview")["jobs"]
    writing = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert writing == {"comment", "outdated", "preview"}
    assert jobs["preview"]["permissions"] == {"contents": "read", "id-token": "write"}
    for name in ("comment", "outdated"):
        [checkout] = [step for step in jobs[name]["steps"] if "actions/checkout" in step.get("uses", "")]
        assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert "secrets." not in yaml.safe_dump({name: jobs[name] for name in jobs.keys() - {"preview"}})


def test_forks_get_only_what_needs_no_credentials() -> None:
    jobs = workflow("preview")["jobs"]
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    of_forks = {name for name, job in jobs.items() if own not in job.get("if", "") and "needs" not in job}
    of_forks |= {name for name, job in jobs.items() if job.get("needs") == "environments"} - {"preview"}
    assert of_forks == {"environments", "forecast"}
    assert own in jobs["preview"]["if"]
    assert own in jobs["outdated"]["if"]
    assert "needs.preview.result != 'skipped'" in jobs["review"]["if"]
    assert all(jobs[name]["permissions"] == {"contents": "read"} for name in of_forks)


def test_a_job_has_the_secrets_of_one_stack() -> None:
    """A job with secrets has the GitHub environment of its stack, and nothing is a repository's variable."""
    environments = {}
    for name in ("preview", "deploy", "drift"):
        for job, settings in workflow(name)["jobs"].items():
            text = yaml.safe_dump(settings)
            assert not re.findall(r"vars\.(?!MAX_MONTHLY_INCREASE|MIN_AVAILABILITY)\w+", text)
            if "secrets." in text:
                environments[name, job] = settings["environment"]
    assert environments == {
        ("preview", "preview"): "${{ matrix.stack }}-preview",
        ("deploy", "dev"): "dev",
        ("deploy", "plan"): "prod-preview",
        ("deploy", "prod"): "production",
    }


def test_of_a_stack_one_deployment_runs_at_a_time_and_only_the_newest_preview() -> None:
    deploy = workflow("deploy")
    groups = {name: job.get("concurrency") for name, job in deploy["jobs"].items()}
    assert "concurrency" not in deploy
    assert groups == {
        "stacks": None,
        "dev": {"group": "deploy-dev", "cancel-in-progress": False},
        "plan": None,
        "prod": {"group": "deploy-prod", "cancel-in-progress": False},
    }
    assert workflow("preview")["concurrency"]["cancel-in-progress"] is True


def test_the_named_stacks_have_files() -> None:
    named = json.loads((ROOT / ".github/stacks.json").read_text("utf-8"))
    assert named == {"dev": {}, "prod": {}}  # nothing is previewed or deployed without roles
    assert all((ROOT / "stacks" / f"Pulumi.{name}.yaml").exists() for name in named)


def test_gitlabs_example_has_jobs_with_scripts_a_token_and_an_environment() -> None:
    page = (ROOT / "docs/pull-requests.md").read_text("utf-8").partition("### On GitLab")[2]
    document = yaml.safe_load(page.split("```")[1].removeprefix("yaml\n"))
    base = document.pop(".stack")
    assert base["id_tokens"] == {"TOKEN": {"aud": "https://gitlab.com"}}
    assert base["before_script"] == ['printenv TOKEN > "$AWS_WEB_IDENTITY_TOKEN_FILE"', "make setup"]
    engines = {step["with"]["pulumi-version"] for step in steps("deploy") if "pulumi/actions" in str(step)}
    assert {base["image"].rpartition(":")[2]} == engines
    assert document.keys() == {"preview-dev", "up-prod"}
    for job in document.values():
        assert job["extends"] == ".stack"
        called = {line.split()[0] for line in [*job["script"], *job.get("after_script", ())]}
        assert all(os.access(ROOT / name, os.X_OK) for name in called)
    assert document["up-prod"]["resource_group"] == document["up-prod"]["environment"] == "prod"


def test_zizmor_finds_nothing_unsafe_in_the_workflows() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [zizmor, "--offline", "--no-progress", "--quiet", ROOT / ".github" / "workflows"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
