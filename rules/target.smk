"""The target: its weights and its hidden states.

REQUIRED INPUTS
    whatever `target` in the configuration names: a hub model, a local folder, or the toy's plan
    for the hidden states, <results>/tokenized/ and its stamp
OUTPUTS
    <target>/ and <target>/weights.json, shared between runs
    <results>/hidden_states/{digest8}/ and <results>/hidden_states.json
"""

if "build" in CONFIG["target"]:

    rule build_toy_target:
        """Train a small target with a tokenizer and a strict chat template of its own."""
        input:
            plan=expand(
                "resources/toy_target/{name}",
                name=[
                    "config.json",
                    "tokenizer_config.json",
                    "chat_template.jinja",
                    "conversations.jsonl",
                ],
            ),
        output:
            weights="<target>/weights.json",
        log:
            "<logs>/build_toy_target.log",
        benchmark:
            "<benchmarks>/build_toy_target.tsv"
        conda:
            "../envs/training.yaml"
        threads: 8
        resources:
            mem_mb=3000,
            runtime=30,
        params:
            settings=lambda w: settings("build_toy_target"),
            code=code_digest("build_toy_target.py", environment="training.yaml"),
        shell:
            "python scripts/build_toy_target.py"
            " --settings {params.settings:q}"
            " --plan {input.plan[0]:q}"
            " --weights {output.weights:q}"
            " --log {log:q}"

else:

    rule fetch_target:
        """Bring the target from the hub or link it; the manifest is written last."""
        input:
            files=local_target_files(CONFIG),
        output:
            weights="<target>/weights.json",
        log:
            "<logs>/fetch_target.log",
        benchmark:
            "<benchmarks>/fetch_target.tsv"
        retries: 2
        localrule: True
        conda:
            "../envs/data.yaml"
        resources:
            mem_mb=2000,
            runtime=600,
        params:
            settings=lambda w: settings("fetch_target"),
            code=code_digest("fetch_target.py", environment="data.yaml"),
        shell:
            "python scripts/fetch_target.py"
            " --settings {params.settings:q}"
            " --weights {output.weights:q}"
            " --log {log:q}"


rule extract_hidden_states:
    """Store what the drafter reads of the target, for every token row."""
    input:
        stamp="<results>/verified.json",
        tokenized="<results>/tokenized/stats.json",
        weights="<target>/weights.json",
    output:
        manifest="<results>/hidden_states.json",
    log:
        "<logs>/extract_hidden_states.log",
    benchmark:
        "<benchmarks>/extract_hidden_states.tsv"
    conda:
        "../envs/target.yaml"
    threads: 8
    resources:
        mem_mb=3000 + 20000 * SERVING["gpus"],
        runtime=1440,
        gpu=SERVING["gpus"] if CONFIG["hidden_states"]["backend"] == "vllm" else 0,
        serving=canonical(SERVING),
    params:
        settings=lambda w: settings("extract_hidden_states"),
        code=code_digest(
            "extract_hidden_states.py",
            "lib/cpu_hidden_states_connector.py",
            "lib/vllm_launcher.py",
            "lib/guardian.py",
            environment="target.yaml",
        ),
    shell:
        "python scripts/extract_hidden_states.py"
        " --settings {params.settings:q}"
        " --serving {resources.serving:q}"
        " --stamp {input.stamp:q}"
        " --tokenized {input.tokenized:q}"
        " --weights {input.weights:q}"
        " --manifest {output.manifest:q}"
        " --log {log:q}"
