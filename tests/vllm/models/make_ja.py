"""Make the model of ja/: 3 MB that recite Japanese, emoji, Latin, Cyrillic and code.

Its vocabulary is small, so that about half of its tokens end in the middle of a
character, as large models' tokens do in Japanese and emoji: just what a streaming
client has to stand. Six minutes on one core; torch and transformers are in .cache/vllm.

    .cache/vllm/bin/python tests/vllm/models/make_ja.py [--into FOLDER]
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

TARGET = Path(__file__).resolve().parent / "ja"
PARAGRAPHS = [
    (
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
        "何でも薄暗いじめじめした所でニャーニャー泣いていた事だけは記憶している。"
    ),
    (
        "東京は日本の首都です。今日は天気がいいから散歩しましょう。"
        "ストリーミングの途中で接続が切れたら、続きから再開します。"
    ),
    (
        "絵文字もたくさん使います 😀😂🚀👍🏽👨‍👩‍👧‍👦🇯🇵❤️✨🎉 "
        "そして 漢字とカタカナとひらがなが混ざります。🐱🐶🦊🐼"
    ),
    (
        "Le café est très bon à Zürich, naïve façade über Straße. "
        "Привет, мир! 안녕하세요 세계."
    ),
    (
        "The quick brown fox jumps over the lazy dog.  Two spaces,\n\n"
        "- a list item\n- another **bold** item\n\n"
        "```python\ndef f(x):\n    return x + 1\n```\n"
    ),
    (
        "龍が空を飛ぶ🐉。鬱蒼とした森の中、𠮷野家の前で𩸽を食べる。"
        "「すごい！」と叫んだ🎊🥳。"
    ),
]
QUESTIONS = ["Hi", "猫の話をして", "hello 😀", "Tell me", "続けて", "Write a list"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STEPS, LENGTH, RATE, WARM_UP = 220, 320, 3e-3, 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the test model.")
    parser.add_argument("--into", type=Path, default=TARGET, help="where to put it")
    into = parser.parse_args().into
    torch.set_num_threads(os.cpu_count() or 1)
    tokenizer = vocabulary()
    tokenizer.save_pretrained(into)
    torch.manual_seed(0)
    model = empty(tokenizer)
    random.seed(0)
    learn(model, documents(tokenizer))
    model.save_pretrained(into)


def vocabulary() -> transformers.PreTrainedTokenizerFast:
    """A byte-level vocabulary of 420 tokens."""
    made = tokenizers.Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        min_frequency=2,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["\n".join(PARAGRAPHS)] * 3, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token="<|im_start|>",
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def empty(
    tokenizer: transformers.PreTrainedTokenizerFast,
) -> transformers.LlamaForCausalLM:
    """A Llama that knows nothing yet."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=2048,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        )
    )


def documents(tokenizer: transformers.PreTrainedTokenizerFast) -> list[list[int]]:
    """The paragraphs in many orders, every other time as the answer of a chat."""
    found = []
    for number in range(400):
        paragraphs = PARAGRAPHS[:]
        random.shuffle(paragraphs)
        text = "\n".join(paragraphs)
        if number % 2:
            question = random.choice(QUESTIONS)
            text = (
                f"<|im_start|>user\n{question}<|im_end|>\n"
                f"<|im_start|>assistant\n{text}<|im_end|>"
            )
        found.append(tokenizer(text)["input_ids"])
    return found


def learn(model: transformers.LlamaForCausalLM, found: list[list[int]]) -> None:
    """A few hundred steps over windows of the documents."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(STEPS):
        rate = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / STEPS) + 1e-5
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = torch.tensor([window(random.choice(found)) for _ in range(8)])
        wanted = batch.clone()
        wanted[wanted == 0] = -100  # padding is not to be learned
        loss = model(input_ids=batch, labels=wanted).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.3f}", flush=True)  # noqa: T201 - a program's word
    model.eval()


def window(document: list[int]) -> list[int]:
    """As much of a document as fits, from its begin or anywhere."""
    start = 0
    if random.random() >= 0.5:
        start = random.randint(0, max(0, len(document) - LENGTH))
    part = document[start : start + LENGTH]
    return part + [0] * (LENGTH - len(part))


if __name__ == "__main__":
    main()
