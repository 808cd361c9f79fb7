"""What the drafter is worth.

REQUIRED INPUTS
    <results>/drafter/, <target>/ and the evaluation prompts
OUTPUTS
    <results>/evaluation.json
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
        " --log {log:q}"
