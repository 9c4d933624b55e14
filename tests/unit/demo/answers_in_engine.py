"""Runs in the engine's Python: renders conversations and lets the model answer, without vLLM.

Reads {"model": folder, "conversations": [...], "questions": [...]} and prints what came of them.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 64


def main() -> None:
    """Answer the order on standard input."""
    order = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(order["model"])
    model = AutoModelForCausalLM.from_pretrained(order["model"], dtype=torch.float32)
    rendered = [
        tokenizer.apply_chat_template(tokenize=False, add_generation_prompt=True, **conversation)
        for conversation in order["conversations"]
    ]
    answers = [answer(tokenizer, model, question) for question in order["questions"]]
    print("\n" + json.dumps({"rendered": rendered, "answers": answers}))


def answer(tokenizer, model, question):  # type: ignore[no-untyped-def]
    """Return the greedy answer, and by how much the closest of its choices was decided."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    done = model.generate(
        **prompt,
        max_new_tokens=TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    new = done.sequences[0, prompt.input_ids.shape[1] :]
    best = torch.stack(done.logits).topk(2).values[:, 0]
    return {
        "text": tokenizer.decode(new),
        "tokens": len(new),
        "margin": float((best[:, 0] - best[:, 1]).min()),
    }


if __name__ == "__main__":
    main()
