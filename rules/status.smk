"""What is said about a run: before it what is stale and why, after it what was made.

`snakemake status` ends here, before Snakemake takes a lock or starts a job. It looks at the same
graph of jobs that a run would, so both agree.
"""

from ast import literal_eval
from difflib import get_close_matches

from snakemake.settings.types import DAGSettings

from lib.stamp import altered_shards
from lib.status import Job, Made, last_took, status_text

TARGETS = ["all", "dataset", "evaluate", "status", "train", "weights"]


def jobs_to_make(targets):
    """Return all jobs behind some targets, those that go first at the beginning."""
    workflow.dag_settings = DAGSettings(
        targets=targets,
        force_incomplete=True,
        rerun_triggers=ASKED.rerun_triggers,
        max_checksum_file_size=ASKED.max_checksum_file_size,
    )
    workflow._prepare_dag(
        forceall=False, ignore_incomplete=False, lock_warn_only=True, nolock=True
    )
    workflow._build_dag()
    levels = workflow.dag.toposorted()
    return [job for level in levels for job in sorted(level, key=str) if job.output]


def status_of(job):
    """Return what Snakemake knows of a job."""
    dag, recorded = workflow.dag, workflow.persistence
    first = job.output[0]
    before = None
    if recorded.metadata(first) is not None:
        params = map(literal_eval, recorded.params(first) or [])
        before = Made(
            frozenset(params), frozenset(recorded.input(first)), recorded.code(first)
        )
    benchmark = Path(job.benchmark)
    return Job(
        stage=job.rule.name,
        part=next(iter(job.wildcards), ""),
        stale=dag.needrun(job),
        missing=tuple(str(file) for file in job.output if not Path(file).exists()),
        unfinished=bool(recorded._filter_incomplete_keys(map(str, job.output))),
        before=before,
        now=Made(frozenset(job.params), frozenset(job.input), job.rule.shellcmd),
        changed_inputs=tuple(sorted(dag.reason(job).updated_input)),
        after=tuple(
            sorted({d.rule.name for d in dag.dependencies[job] if dag.needrun(d)})
        ),
        seconds=last_took(benchmark.read_text()) if benchmark.is_file() else None,
    )


def unknown_target(target):
    """Return what to say about a target that is neither a rule nor a file to make."""
    near = get_close_matches(target, TARGETS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TARGETS)}"
    return f"target {target} is not known; {hint} (snakemake --list names all rules)"


if workflow.is_main_process:
    for path in altered_shards(Path("results", RUN, "tokenized")):
        print(
            f"{path} is missing or has another size: a stage that reads it stops. Delete"
            f" {path.parent / 'stats.json'} to have it made again.",
            file=sys.stderr,
        )

if ASKED is not None:
    for name in ASKED.targets:
        if not (workflow.is_rule(name) or "/" in name):
            sys.exit(unknown_target(name))
    if "status" in ASKED.targets:
        wanted = set(ASKED.targets) - {"status"} or {"all"}
        print(status_text([status_of(job) for job in jobs_to_make(wanted)]))
        sys.exit()


onsuccess:
    print(headline(Path("results", RUN)))
