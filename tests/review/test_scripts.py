"""The scripts of the workflows, run with doubles of pulumi and gh and real git and jq."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_spot.review.comment import MARKER
from gpu_spot.review.deployed_files import change_every_stack, deployed_folders
from tests.infra.declared import ROOT, shipped
from tests.review.making import FORECAST, GOLDEN, made_previews
from tests.waiting import TIMEOUT_SECONDS

SCRIPTS = ROOT / ".github" / "scripts"

PULUMI = """#!/usr/bin/env bash
printf '%s\\n' "$@" > arguments
env | grep ^PULUMI_ | sort > environment
while (($#)); do [[ $1 == --event-log ]] && cat events > "$2"; shift; done
cat output
echo "message on standard error" >&2
exit "$(cat status)"
"""
GH = """#!/usr/bin/env bash
printf '%s ' "$@" >> calls; echo >> calls
[[ $* == *--method* ]] || cat answer
"""
FILES = {
    "contracts/names.py": "",
    "infra/__main__.py": "from infra.program import stack\n",
    "infra/program/stack.py": "from contracts.names import STACK\n\nPACKED = ('lambdas', 'userdata')\n",
    "policy/__main__.py": "def pack() -> None:\n    import policy.rules.model\n",
    "policy/rules/model.py": "",
}
"""What a preview imports and packs, in little; of the repository itself a test below tries each file."""
REVIEW = "import sys; from gpu_spot.cli import main; sys.exit(main())"


@pytest.fixture
def work_dir(tmp_path: Path, require_program: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's directory with doubles of the programs first on the path."""
    require_program("jq")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("pulumi", PULUMI), ("gh", GH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    work = tmp_path / "work"
    shutil.copytree(SCRIPTS, work / ".github" / "scripts")
    monkeypatch.chdir(work)
    return work


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"REPOSITORY": "us/stacks", "NUMBER": "7", "COMMIT": "c0ffee", "RUN": "run/1", **environment}
    command = [f".github/scripts/{name}", *arguments]
    return subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )


def workflow(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))
    return document


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def engine(work_dir: Path, output: str, *events: object, status: int = 0) -> None:
    (work_dir / "output").write_text(output)
    (work_dir / "events").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    (work_dir / "status").write_text(str(status))


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def base(work_dir: Path, *environments: str, others: tuple[str, ...] = ("sample",)) -> None:
    """Commit stack files of ``environments``, which the team has named, and of ``others``."""
    git("init", "--quiet", "--initial-branch", "main")
    (work_dir / "gpu_spot" / "review").mkdir(parents=True)
    shutil.copy(ROOT / "gpu_spot" / "review" / "deployed_files.py", work_dir / "gpu_spot" / "review")
    packages = (f"{name}/__init__.py" for name in ("contracts", "infra", "lambdas", "policy", "userdata"))
    for path, text in {**dict.fromkeys(packages, ""), **FILES}.items():
        (work_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (work_dir / path).write_text(text)
    known = {name: {"previewRoleArn": f"arn:{name}"} if name == "prod" else {} for name in environments}
    (work_dir / ".github" / "stacks.json").write_text(json.dumps(known))
    for name in (*environments, *others):
        (work_dir / "stacks").mkdir(exist_ok=True)
        (work_dir / "stacks" / f"Pulumi.{name}.yaml").write_text("config: {}\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "base")


@pytest.mark.parametrize(
    ("paths", "changed"),
    [
        (["docs/operations.md", "README.md", "tests/x.py"], []),
        (["stacks/Pulumi.dev.yaml", "docs/operations.md"], ["dev"]),
        (["stacks/Pulumi.prod.yaml", "stacks/Pulumi.dev.yaml"], ["dev", "prod"]),
        (["infra/program/stack.py"], ["dev", "prod"]),
        (["contracts/names.py"], ["dev", "prod"]),
        (["contracts/new.json", "docs/x.md"], ["dev", "prod"]),
        (["setup.py"], ["dev", "prod"]),
        ([".github/workflows/deploy.yml"], ["dev", "prod"]),
        (["userdata/boot.sh"], ["dev", "prod"]),
        (["requirements.lock"], ["dev", "prod"]),
        (["policy/rules/data.py"], ["dev", "prod"]),
        (["infra/__main__.py"], ["dev", "prod"]),
        (["policy/config/prod.json"], ["prod"]),
        (["stacks/Pulumi.sample.yaml", "stacks/Pulumi.new one.yaml"], []),
        (["stacks/Pulumi.sample.yaml", "infra/x.py"], ["dev", "prod"]),
    ],
)
def test_only_environments_that_the_pull_request_changes(
    work_dir: Path, paths: list[str], changed: list[str]
) -> None:
    base(work_dir, "dev", "prod")
    for path in paths:
        (work_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (work_dir / path).write_text("# other\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "head")
    entries = json.loads(script("changed-environments", "HEAD^1").stdout)
    assert [entry["stack"] for entry in entries] == changed
    [*previewed] = json.loads(script("changed-environments", "HEAD^1", "previewRoleArn").stdout)
    assert previewed == [{"stack": "prod", "previewRoleArn": "arn:prod"}] * ("prod" in changed)


def deployed_from(checkout: Path, stack: str) -> dict[tuple[str, str], Any]:
    """What the program of a checkout declares, with the archives that it packs."""
    code = (
        "import json; from pathlib import Path; from tests.infra import program;"
        f"print(json.dumps(program.declared('known', {stack!r}, Path('stacks/Pulumi.{stack}.yaml'))))"
    )
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=environment | {"PYTHONPATH": str(checkout)},  # the next run reads this one's bytecode
        capture_output=True,
        text=True,
        check=True,
    )
    return without_place(json.loads(done.stdout)["declared"], checkout)


def without_place(declared: list[dict[str, Any]], checkout: Path) -> dict[tuple[str, str], Any]:
    read = json.loads(json.dumps(declared).replace(str(checkout), ""))
    return {(one["type"], one["name"]): one["inputs"] for one in read}


def with_a_line_more(paths: list[Path]) -> None:
    for path in paths:
        is_commented = path.suffix in (".py", ".yaml", ".toml", ".sh", ".md") or not path.suffix
        with path.open("a", encoding="utf-8") as file:
            file.write("# a line\n" if is_commented else "\n")


@pytest.mark.long
def test_a_line_in_a_file_that_changes_no_stack_changes_nothing_that_is_deployed(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    known = sorted(path for path in tracked.stdout.splitlines() if (ROOT / path).is_file())
    changing = set(change_every_stack(known, ROOT))
    assert len(changing) >= 200
    assert deployed_folders(ROOT) == {"contracts", "infra", "lambdas", "policy", "userdata"}
    assert not {path for path in changing if path.startswith(("docs/", "tests/", "research/", "examples/"))}
    for path in known:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path, follow_symlinks=False)
    before = without_place(shipped("research").declared, ROOT)
    changing.add("stacks/Pulumi.research.yaml")
    others = [tmp_path / path for path in known if path not in changing]
    with_a_line_more([path for path in others if not path.is_symlink()])
    assert deployed_from(tmp_path, "research") == before
    for path in ("contracts/names.py", "policy/rules/model.py", "userdata/agent/__init__.py"):
        assert path in changing
    with_a_line_more([tmp_path / "userdata/agent/__init__.py"])
    assert deployed_from(tmp_path, "research") != before


def test_a_new_entry_has_a_preview_and_one_without_a_file_has_none(work_dir: Path) -> None:
    base(work_dir, "dev", "prod")
    named = {"dev": {}, "sample": {"region": "eu-west-1"}, "nowhere": {}}
    (work_dir / ".github" / "stacks.json").write_text(json.dumps(named))
    git("commit", "--quiet", "--all", "--message", "head")
    changed = json.loads(script("changed-environments", "HEAD^1").stdout)
    assert changed == [{"stack": "dev"}, {"stack": "sample", "region": "eu-west-1"}]


def test_a_deleted_environment_has_no_preview(work_dir: Path) -> None:
    base(work_dir, "dev", "prod")
    git("rm", "--quiet", "stacks/Pulumi.prod.yaml")
    git("commit", "--quiet", "--message", "head")
    assert json.loads(script("changed-environments", "HEAD^1").stdout) == []


def test_a_preview_stores_engine_and_policy_results(work_dir: Path) -> None:
    violated = {"policyEvent": {"policyName": "imdsv2"}}
    engine(work_dir, '{"steps": []}', {"resourcePreEvent": {"secret": "inputs"}}, violated, status=1)
    (work_dir / "policy" / "config").mkdir(parents=True)
    (work_dir / "policy" / "config" / "prod.json").write_text("{}")
    done = script("preview", "prod", "--refresh", PULUMI_BACKEND_URL="", PULUMI_ACCESS_TOKEN="token")
    assert done.returncode == 1  # a mandatory policy forbids it
    assert json.loads((work_dir / "out/preview/prod.json").read_text()) == {"steps": []}
    assert [json.loads(line) for line in (work_dir / "out/preview/prod.jsonl").read_text().splitlines()] == [
        violated
    ]
    arguments = (work_dir / "arguments").read_text().splitlines()
    assert arguments[:3] == ["preview", "--stack", "prod"]
    assert {"--json", "--show-sames", "--refresh", "./policy/config/prod.json"} <= set(arguments)
    environment = (work_dir / "environment").read_text()
    assert "PULUMI_DEBUG_COMMANDS=true" in environment
    assert "PULUMI_ACCESS_TOKEN=token" in environment
    assert "PULUMI_BACKEND_URL" not in environment


def test_a_preview_of_a_part_says_so(work_dir: Path) -> None:
    engine(work_dir, '{"steps": []}')
    script("preview", "dev", "--target", "urn:x")
    assert json.loads((work_dir / "out/preview/dev.json").read_text())["arguments"] == ["--target", "urn:x"]


def test_a_preview_without_json_reports_its_error(work_dir: Path) -> None:
    engine(work_dir, "error: no stack named 'dev' found", status=255)
    done = script("preview", "dev")
    assert done.returncode == 255
    [diagnostic] = json.loads((work_dir / "out/preview/dev.json").read_text())["diagnostics"]
    assert diagnostic == {"severity": "error", "message": "message on standard error\n"}
    assert "--policy-pack-config" not in (work_dir / "arguments").read_text()
    engine(work_dir, "", status=0)
    assert script("preview", "dev").returncode == 1


def command(work_dir: Path, forecast: str, status: int = 0) -> str:
    """Return a ``gpu-spot`` with a fixed forecast and the real other commands."""
    (work_dir / "forecast.md").write_text(forecast)
    (work_dir / "error").write_text("boom at `<details>\n")
    (work_dir / "review.py").write_text(REVIEW)
    path = work_dir / "gpu-spot"
    path.write_text(
        "#!/usr/bin/env bash\n"
        f'[[ $1 != forecast ]] || {{ echo "$@" > asked; cat forecast.md; cat error >&2; exit {status}; }}\n'
        f'exec {sys.executable} {work_dir}/review.py "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
def test_the_engines_output_becomes_the_comment(work_dir: Path) -> None:
    fleet = made_previews("other-types-of-a-fleet")["fleet"]
    engine(work_dir, fleet.digest, *map(json.loads, fleet.events.splitlines()))
    base(work_dir, "fleet")
    known = {"GPU_SPOT": command(work_dir, FORECAST), "PYTHONPATH": str(ROOT)}
    assert script("preview", "fleet").returncode == 0
    assert script("forecast", "fleet", "HEAD", **known, MAX_MONTHLY_INCREASE="100").returncode == 0
    assert "--head stacks/Pulumi.fleet.yaml --markdown --base" in (work_dir / "asked").read_text()
    assert "--max-monthly-increase 100" in (work_dir / "asked").read_text()
    run = {"RUN": "https://ci.example.org/run/1", "COMMIT": "c0ffee" * 6}
    done = script("review", "comment.md", **known, **run)
    assert done.returncode == 0, done.stderr
    golden = (GOLDEN / "other-types-of-a-fleet.md").read_text("utf-8")
    assert (work_dir / "comment.md").read_text("utf-8") == golden


@pytest.mark.parametrize(
    ("status", "expected", "text"), [(3, 3, "dear"), (2, 0, "No forecast: `boom at '<details>`")]
)
def test_an_exceeded_threshold_fails_but_a_failed_forecast_does_not(
    work_dir: Path, status: int, expected: int, text: str
) -> None:
    git("init", "--quiet", "--initial-branch", "main")
    (work_dir / "stacks").mkdir()
    (work_dir / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    git("commit", "--quiet", "--allow-empty", "--message", "base")
    done = script("forecast", "dev", "HEAD", GPU_SPOT=command(work_dir, "dear\n", status))
    assert done.returncode == expected
    assert text in (work_dir / "out/preview/dev.md").read_text()
    assert "--base" not in (work_dir / "asked").read_text()  # new: there is nothing to compare with


@pytest.mark.parametrize("existing", [False, True])
def test_the_comment_is_edited_where_there_is_one(work_dir: Path, existing: bool) -> None:
    (work_dir / "comment.md").write_text("<!-- gpu-spot preview -->\nnew\n")
    others = [
        {"id": 1, "user": {"login": "somebody"}, "body": "<!-- gpu-spot preview -->\nquoted"},
        {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "another bot's"},
    ]
    own = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": "<!-- gpu-spot preview -->\nold"}
    (work_dir / "answer").write_text(json.dumps([*others, *([own] if existing else [])]))
    assert script("comment", "comment.md").returncode == 0
    [_, call] = (work_dir / "calls").read_text().splitlines()
    where = (
        "PATCH repos/us/stacks/issues/comments/3" if existing else "POST repos/us/stacks/issues/7/comments"
    )
    assert f"--method {where} --field body=@comment.md" in call


def test_only_generated_comments_are_posted(work_dir: Path) -> None:
    (work_dir / "comment.md").write_text('"] | anything\n')
    assert script("comment", "comment.md").returncode == 2
    (work_dir / "real.md").write_text(f"{MARKER}\n")
    (work_dir / "link.md").symlink_to("real.md")
    assert script("comment", "link.md").returncode == 2
    assert not (work_dir / "calls").exists()


@pytest.mark.parametrize("existing", [False, True])
def test_a_run_replaces_the_comment_of_a_former_commit_before_it_previews(
    work_dir: Path, existing: bool
) -> None:
    own = {
        "id": 3,
        "user": {"login": "github-actions[bot]"},
        "body": f"{MARKER}\n**No running worker stops.**",
    }
    (work_dir / "answer").write_text(json.dumps([own] if existing else []))
    assert script("comment").returncode == 0
    _, *changing = (work_dir / "calls").read_text().split("api --method ")
    assert len(changing) == existing
    for call in changing:
        assert call.startswith(f"PATCH repos/us/stacks/issues/comments/3 --raw-field body={MARKER}\n")
        assert "no preview of `c0ffee`: [the run](run/1)" in call


@pytest.mark.long
def test_a_preview_that_left_nothing_is_not_known(work_dir: Path) -> None:
    known = {"GPU_SPOT": command(work_dir, FORECAST), "PYTHONPATH": str(ROOT)}
    engine(work_dir, '{"steps": []}')
    assert script("preview", "dev").returncode == 0
    previewed = json.dumps([{"stack": "dev"}, {"stack": "prod"}])
    assert script("review", "comment.md", **known, PREVIEWED=previewed).returncode == 0
    text = (work_dir / "comment.md").read_text("utf-8")
    assert "**Not known whether workers end in `prod`, `dev`.**" in text
    assert "its job failed before, or was not approved" in text


def test_a_stack_or_a_title_is_no_program(work_dir: Path) -> None:
    (work_dir / "found").mkdir()
    (work_dir / "found" / 'x") or true or ("y.md').write_text("it\n")
    (work_dir / "answer").write_text(json.dumps([{"number": 8, "title": "Drift: prod"}]))
    assert script("drift-issue", "found").returncode == 0
    [_, call] = (work_dir / "calls").read_text().splitlines()
    assert call.startswith("api --method POST repos/us/stacks/issues ")


@pytest.mark.parametrize(("status", "file"), [(0, "dev.same"), (3, "dev.md"), (1, None)])
def test_drift_follows_the_exit_status_of_the_review(work_dir: Path, status: int, file: str | None) -> None:
    double = work_dir / "gpu-spot"
    double.write_text(
        "#!/usr/bin/env bash\n"
        f'while (($#)); do [[ $1 != --out ]] || echo it > "$2"; shift; done; exit {status}\n'
    )
    double.chmod(0o755)
    done = script("drift", "dev", "out/drift", GPU_SPOT=str(double))
    assert done.returncode == (0 if file else status)
    if file:
        assert [one.name for one in (work_dir / "out/drift").iterdir()] == [file]


@pytest.mark.parametrize(
    ("file", "open_", "call"),
    [
        (
            "dev.md",
            False,
            "POST repos/us/stacks/issues --raw-field title=Drift: dev --field body=@found/dev.md",
        ),
        ("dev.md", True, "PATCH repos/us/stacks/issues/9 --field body=@found/dev.md"),
        ("dev.same", True, "PATCH repos/us/stacks/issues/9 --raw-field state=closed"),
        ("dev.same", False, None),
    ],
)
def test_one_issue_for_each_environment_that_has_drifted(
    work_dir: Path, file: str, open_: bool, call: str | None
) -> None:
    (work_dir / "found").mkdir()
    (work_dir / "found" / file).write_text("it\n")
    answer = [
        {"number": 8, "title": "Drift: prod"},
        *([{"number": 9, "title": "Drift: dev"}] if open_ else []),
    ]
    (work_dir / "answer").write_text(json.dumps(answer))
    assert script("drift-issue", "found").returncode == 0
    _, *changing = (work_dir / "calls").read_text().splitlines()
    assert [call in one for one in changing] == [True] if call else not changing


def test_up_enforces_the_policies_of_an_environment(work_dir: Path) -> None:
    engine(work_dir, "")
    (work_dir / "policy" / "config").mkdir(parents=True)
    (work_dir / "policy" / "config" / "prod.json").write_text("{}")
    assert script("up", "prod", PULUMI_BACKEND_URL="", GPU_SPOT="true").returncode == 0
    arguments = (work_dir / "arguments").read_text().splitlines()
    assert arguments[0] == "up"
    assert {"--yes", "--policy-pack", "policy/config/prod.json"} <= set(arguments)
    assert "--skip-preview" not in arguments
    assert script("up", "prod", "prod.plan", GPU_SPOT="true").returncode == 0
    assert (work_dir / "arguments").read_text().splitlines()[-2:] == ["--plan", "prod.plan"]


def test_up_begins_nothing_that_running_agents_are_too_old_for(work_dir: Path) -> None:
    refusing = work_dir / "refusing"
    refusing.write_text('#!/bin/sh\necho "$@" > checked\nexit 1\n')
    refusing.chmod(0o755)
    assert script("up", "prod", GPU_SPOT=str(refusing)).returncode == 1
    assert (work_dir / "checked").read_text() == "preflight --stack prod --only node agents\n"
    assert not (work_dir / "arguments").exists()


def test_the_base_judges_the_head(work_dir: Path) -> None:
    """Review, forecast, policies, their settings and the scripts are those of the base commit."""
    jobs = workflow("preview")["jobs"]
    [checkout] = [step for step in jobs["review"]["steps"] if "actions/checkout" in step.get("uses", "")]
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    for job in ("forecast", "preview"):
        called = [step["run"] for step in jobs[job]["steps"] if ".github/scripts/" in step.get("run", "")]
        assert called
        assert all(line.startswith("base/.github/scripts/") for line in called)
    [preview] = [step for step in jobs["preview"]["steps"] if step.get("name") == "Preview"]
    assert preview["env"]["BASE"] == "base"
    engine(work_dir, "{}")
    for folder in ("policy", "base/policy"):
        (work_dir / folder / "config").mkdir(parents=True, exist_ok=True)
        (work_dir / folder / "config" / "dev.json").write_text("{}")
    assert script("preview", "dev", BASE="base").returncode == 0
    arguments = (work_dir / "arguments").read_text().splitlines()
    assert {"base/policy", "base/policy/config/dev.json"} <= set(arguments)
    assert not {"policy", "policy/config/dev.json"} & set(arguments)


@pytest.mark.parametrize(
    ("stacks", "status", "said"),
    [
        ({"dev": {}, "prod": {}}, 0, "nothing is deployed"),
        ({"dev": {"deployRoleArn": "d"}, "prod": {}}, 0, ""),
        ({"dev": {}, "prod": {"deployRoleArn": "p", "previewRoleArn": "q"}}, 0, ""),
        ({"dev": {}, "prod": {"deployRoleArn": "p"}}, 1, "no previewRoleArn"),
    ],
)
def test_prod_is_deployed_with_a_plan_with_and_without_dev(
    work_dir: Path, stacks: dict[str, Any], status: int, said: str
) -> None:
    jobs = workflow("deploy")["jobs"]
    (work_dir / ".github/stacks.json").write_text(json.dumps(stacks))
    [read] = [step["run"] for step in jobs["stacks"]["steps"] if step.get("id") == "read"]
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", read],
        env=os.environ | {"GITHUB_OUTPUT": "output.txt"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert said in done.stdout if said else not done.stdout
    assert "needs.dev.result == 'skipped'" in jobs["plan"]["if"]
    assert jobs["prod"]["needs"] == ["stacks", "plan"]
    assert ".github/scripts/up prod prod.plan" in [step.get("run") for step in jobs["prod"]["steps"]]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name
)
def test_scripts_of_workflows_exist_and_take_no_expressions(path: Path) -> None:
    steps = [
        step for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values() for step in job["steps"]
    ]
    called = {
        name for step in steps for name in re.findall(r"\.github/scripts/([\w-]+)", step.get("run", ""))
    }
    assert all(os.access(SCRIPTS / name, os.X_OK) for name in called)
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]
