"""How fast planning is and what it holds in memory: N synthetic conversations, planned in a process of its own.

    python benchmarks/planning.py [--conversations 1000000] [--directory DIR] [--json FILE]
    python benchmarks/planning.py --pretokenised 10000000 [--tokens 16] [--directory DIR] [--json FILE]

The conversations have one to three turns of words drawn at random, about 200 tokens together; one in a
hundred repeats an earlier id and one in a thousand is no JSON. The tokenizer is a byte-level BPE of 8,192
tokens trained on them, with a ChatML template without generation tags, the slowest kind for loss masks.

With `--pretokenised` the prompts are so many lists of `--tokens` token ids, which need no tokenizer: what is left is
reading, checking, numbering and writing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arguments import parser
from machine import write_result

from hsqueue.contracts.target import Target
from hsqueue.planning.plan import PlanOptions, make_plan
from hsqueue.planning.tokens import Tokenizer

VOCABULARY = 8192
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--conversations", type=int, default=1_000_000)
    made.add_argument("--pretokenised", type=int, nargs="*", default=[], help="records; several are planned in turn")
    made.add_argument("--tokens", type=int, default=16, help="of each pre-tokenised prompt")
    made.add_argument("--directory", type=Path, default=None, help="where the temporary files go")
    made.add_argument("--plan-only", type=Path, default=None, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.plan_only:
        print(json.dumps(plan(options.plan_only)))
        return
    found = []
    for records in options.pretokenised or [options.conversations]:
        with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
            write = write_pretokenised if options.pretokenised else write_conversations
            write(Path(temporary), records, options.tokens)
            found.append(plan_apart(Path(temporary)))
        tell(found[-1])
        if options.json:
            write_result(options.json, found, options.directory)


def tell(figures: dict[str, Any]) -> None:
    print(json.dumps(figures))
    print(
        f"{figures['records']:,} records of {figures['bytes'] / 1e6:,.0f} MB in {figures['seconds']:,.1f} s "
        f"({figures['cpu_seconds']:,.1f} s of processor time on {figures['cores']} cores): "
        f"{figures['records_per_second']:,.0f} records/s, {figures['tokens_per_second']:,.0f} tokens/s, "
        f"peak RSS {figures['peak_rss_mib']:,.0f} MiB (of it {figures['start_rss_mib']:,.0f} MiB before the first "
        f"record), {figures['samples']:,} samples, {sum(figures['rejected'].values()):,} rejected",
        flush=True,
    )


def plan_apart(directory: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--plan-only", str(directory)]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def write_pretokenised(directory: Path, records: int, tokens: int) -> None:
    """Token ids as text, drawn from few blocks, so that writing takes less time than planning."""
    rng = random.Random(0)
    half = [", ".join(str(rng.randrange(VOCABULARY)) for _ in range(tokens // 2)) for _ in range(4096)]
    with (directory / "prompts.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(
            f'{{"id": "{number}", "input_ids": [{half[number % 4096]}, {half[number // 4096 % 4096]}]}}\n'
            for number in range(records)
        )


def write_conversations(directory: Path, conversations: int, _: int) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("aabcdeeefghiiklmnoopprsttuvw", k=rng.randint(1, 9))) for _ in range(6000)]
    sentences = [" ".join(rng.choices(words, k=rng.randint(5, 15))).capitalize() + "." for _ in range(20_000)]
    make_tokenizer(directory / "tokenizer", sentences[:5000])
    with (directory / "prompts.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(lines(rng, sentences, conversations))


def lines(rng: random.Random, sentences: list[str], conversations: int) -> Iterator[str]:
    for number in range(conversations):
        if number % 1000 == 999:
            yield '{"id": \n'
            continue
        turns = []
        for _ in range(rng.randint(1, 3)):
            turns.append({"role": "user", "content": " ".join(rng.choices(sentences, k=2))})
            turns.append({"role": "assistant", "content": " ".join(rng.choices(sentences, k=5))})
        id = number - 50 if number % 100 == 60 else number
        yield json.dumps({"id": f"conversation-{id:09d}", "conversations": turns}) + "\n"


def make_tokenizer(directory: Path, texts: list[str]) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend = Tokenizer(models.BPE())
    # Qwen's and Llama 3's way of cutting text into words, which is what their tokenizers spend their time on.
    words = Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=special[2], extra_special_tokens=special)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(str(directory))


def plan(directory: Path) -> dict[str, Any]:
    """Runs in a process of its own, so that the peak is the plan's and not that of making the prompts."""
    target = Target("synthetic", "0" * 16, (2, 16, 29), "post", "bfloat16", 4096, VOCABULARY)
    tokenizer = Tokenizer.load(directory / "tokenizer") if (directory / "tokenizer").exists() else None
    prompts, start_rss = directory / "prompts.jsonl", peak_rss_mib()
    began, worked = time.perf_counter(), time.process_time()
    result = make_plan([prompts], directory / "run", target, tokenizer, PlanOptions(max_length=4096))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    records = result.info.samples + sum(result.rejected.values())
    return {
        "records": records,
        "bytes": prompts.stat().st_size,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "records_per_second": round(records / seconds, 1),
        "tokens_per_second": round(result.info.tokens / seconds, 1),
        "peak_rss_mib": round(peak_rss_mib(), 1),
        "start_rss_mib": round(start_rss, 1),
        "samples": result.info.samples,
        "shards": result.info.shards,
        "tokens": result.info.tokens,
        "rejected": dict(result.rejected),
        "plan_bytes": sum(path.stat().st_size for path in (directory / "run" / "plan").rglob("*") if path.is_file()),
        "cores": os.cpu_count(),
    }


def peak_rss_mib() -> float:
    """Linux gives KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
