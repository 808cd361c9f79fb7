"""What the drafter is worth, and the whole run on one page.

REQUIRED INPUTS
    <results>/drafter/, <target>/, the evaluation prompts, and the counts of every stage
OUTPUTS
    <results>/evaluation.json and <results>/evaluation/acceptance.svg
    <results>/report.html
"""


rule evaluate_drafter:
    """Measure what the drafter is worth on prompts that training never saw."""
    input:
        drafter="<results>/drafter/config.json",
        drafter_weights="<results>/drafter/model.safetensors",
        weights="<target>/weights.json",
        prompts=[*CONFIG["evaluate"]["prompts"], *PROMPT_FILES],
    output:
        result="<results>/evaluation.json",
        figure="<results>/evaluation/acceptance.svg",
    log:
        "<logs>/evaluate_drafter.log",
    benchmark:
        "<benchmarks>/evaluate_drafter.tsv"
    conda:
        "../envs/evaluation.yaml"
    threads: 8
    resources:
        mem_mb=3000 + 20000 * SERVING["gpus"],
        runtime=240,
        gpu=SERVING["gpus"] if CONFIG["evaluate"]["backend"] == "vllm" else 0,
        serving=canonical(SERVING),
    params:
        settings=lambda w: settings("evaluate_drafter"),
        code=code_digest(
            "evaluate_drafter.py",
            "lib/vllm_launcher.py",
            "lib/guardian.py",
            environment="evaluation.yaml",
        ),
    shell:
        "python scripts/evaluate_drafter.py"
        " --settings {params.settings:q}"
        " --serving {resources.serving:q}"
        " --drafter {input.drafter:q}"
        " --weights {input.weights:q}"
        " --prompts {input.prompts:q}"
        " --result {output.result:q}"
        " --figure {output.figure:q}"
        " --log {log:q}"


rule report:
    """Show the whole run on one page."""
    input:
        sources=expand("<results>/sources/{source}.stats.json", source=SOURCES),
        merged="<results>/merged/stats.json",
        responses=[] if KEEP_RESPONSES else "<results>/responses/stats.json",
        rows="<results>/tokenized/stats.json",
        stamp="<results>/verified.json",
        training="<results>/train.json",
        evaluation="<results>/evaluation.json",
        figure="<results>/evaluation/acceptance.svg",
        template="resources/report.html.jinja",
    output:
        report="<results>/report.html",
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        settings=lambda w: settings("report"),
        code=code_digest("report.py", environment="data.yaml"),
    shell:
        "python scripts/report.py"
        " --settings {params.settings:q}"
        " --sources {input.sources:q}"
        " --merged {input.merged:q}"
        " --responses {input.responses:q}"
        " --rows {input.rows:q}"
        " --stamp {input.stamp:q}"
        " --training {input.training:q}"
        " --evaluation {input.evaluation:q}"
        " --figure {input.figure:q}"
        " --template {input.template:q}"
        " --report {output.report:q}"
        " --log {log:q}"
