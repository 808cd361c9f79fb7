"""Drafters that others have published: to train on from one, or to compare the run's own with one.

REQUIRED INPUTS
    <target>/, the hub or a local folder; to measure one, the evaluation prompts
OUTPUTS
    models/drafter-{target}@{digest8}/ and its drafter.json, shared between runs
    <results>/evaluation.published.json, if `evaluate.published` names one
"""

if PUBLISHED_DRAFTERS:

    rule fetch_drafter:
        """Bring a published drafter; the manifest is written last."""
        input:
            files=lambda w: local_drafter_files(CONFIG, w.drafter),
            weights="<target>/weights.json",
        output:
            manifest="models/drafter-{drafter}/drafter.json",
        log:
            "<logs>/fetch_drafter/{drafter}.log",
        benchmark:
            "<benchmarks>/fetch_drafter/{drafter}.tsv"
        wildcard_constraints:
            drafter="|".join(map(re.escape, PUBLISHED_DRAFTERS)),
        # Early: one that does not fit stops the run before data is made.
        priority: 1
        localrule: True
        conda:
            "../envs/training.yaml"
        resources:
            mem_mb=2000,
            runtime=120,
        params:
            settings=lambda w: settings("fetch_drafter", w.drafter),
            code=code_digest("fetch_drafter.py", environment="training.yaml"),
        shell:
            "python scripts/fetch_drafter.py"
            " --settings {params.settings:q}"
            " --weights {input.weights:q}"
            " --manifest {output.manifest:q}"
            " --log {log:q}"


if "published" in CONFIG["evaluate"]:

    rule evaluate_published_drafter:
        """Measure a published drafter as the run's own is measured, to compare the two."""
        input:
            drafter=published_manifest("evaluate", "published"),
            weights="<target>/weights.json",
            prompts=[*CONFIG["evaluate"]["prompts"], *PROMPT_FILES],
        output:
            result="<results>/evaluation.published.json",
        log:
            "<logs>/evaluate_published_drafter.log",
        benchmark:
            "<benchmarks>/evaluate_published_drafter.tsv"
        conda:
            "../envs/evaluation.yaml"
        threads: 8
        resources:
            mem_mb=3000 + 20000 * SERVING["gpus"],
            runtime=240,
            gpu=SERVING["gpus"] if CONFIG["evaluate"]["backend"] == "vllm" else 0,
            serving=canonical(SERVING),
        params:
            settings=lambda w: settings("evaluate_published_drafter"),
            code=code_digest(
                "evaluate_published_drafter.py",
                "lib/vllm_launcher.py",
                "lib/guardian.py",
                environment="evaluation.yaml",
            ),
        shell:
            "python scripts/evaluate_published_drafter.py"
            " --settings {params.settings:q}"
            " --serving {resources.serving:q}"
            " --drafter {input.drafter:q}"
            " --weights {input.weights:q}"
            " --prompts {input.prompts:q}"
            " --result {output.result:q}"
            " --log {log:q}"
