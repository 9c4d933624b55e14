"""Makes the demo checkpoint: a tiny GLM-style mixture of experts with random weights.

Nothing is downloaded and nothing is drawn from chance: the same program writes the same bytes
everywhere, so a digest tells whether a checkpoint is the one that the tests know.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

from safetensors.numpy import save_file

from glm53ctl.demo.shape import SHAPE, config
from glm53ctl.demo.streams import Floats
from glm53ctl.demo.template import CHAT_TEMPLATE
from glm53ctl.demo.tokenizer import END, OBSERVATION, USER, DemoTokenizer, train
from glm53ctl.demo.weights import tensors
from glm53ctl.errors import UserError

SHARDS = 4
INDEX = "model.safetensors.index.json"


ModelDigest = NewType("ModelDigest", str)
"""What lies in a checkpoint folder, in one number that changes with any byte of it."""


def make_model(target: Path) -> ModelDigest:
    """Make the checkpoint at `target` and return its digest; leave an equal one untouched.

    It is written beside `target` and renamed into place, so a reader sees all of it or nothing.
    """
    target = Path(os.path.abspath(target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            _write(fresh)
            made = digest_of(fresh)
            if not target.is_dir() or digest_of(target) != made:
                _refuse_foreign(target, ours={path.name for path in fresh.iterdir()})
                _swap(fresh, target, old=Path(scratch) / "old")
    except OSError as error:
        raise UserError(
            "DEMO_MODEL",
            f"The demo model cannot be written to {target}: {error.strerror or error}.",
            "Choose a folder of your own with 10 MB free.",
        ) from error
    return made


def digest_of(folder: Path) -> ModelDigest:
    """Return the digest over name, size and SHA-256 of every file in a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{path.stat().st_size}\0{content}\n".encode())
    return ModelDigest(digest.hexdigest())


def _write(folder: Path) -> None:
    tokenizer = train()
    end, *stops = (tokenizer.one(text) for text in (END, USER, OBSERVATION))
    model_config = config(SHAPE, tokenizer.size, end, [end, *stops])
    _write_json(folder / "config.json", model_config)
    _write_json(folder / "generation_config.json", {
        "do_sample": True, "temperature": 1.0, "top_p": 0.95,
        "eos_token_id": [end, *stops], "pad_token_id": end,
    })  # fmt: skip
    _write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
        "model_max_length": SHAPE.context, "clean_up_tokenization_spaces": False,
    })  # fmt: skip
    _write_text(folder / "tokenizer.json", tokenizer.to_json())
    _write_text(folder / "chat_template.jinja", CHAT_TEMPLATE)
    _write_shards(folder, tokenizer)


def _write_shards(folder: Path, tokenizer: DemoTokenizer) -> None:
    everything = dict(tensors(SHAPE, tokenizer))
    places: dict[str, str] = {}
    for number, names in enumerate(_evenly(everything), start=1):
        shard = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        save_file({name: everything[name] for name in names}, folder / shard, {"format": "pt"})
        # safetensors makes its files private; a checkpoint is read by another user's engine.
        (folder / shard).chmod(0o644)
        places |= dict.fromkeys(names, shard)
    total = sum(tensor.nbytes for tensor in everything.values())
    _write_json(
        folder / INDEX,
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))},
    )


def _evenly(everything: dict[str, Floats]) -> Iterator[list[str]]:
    """Cut the tensors, in their order, into shards of about equal size."""
    limit = sum(tensor.nbytes for tensor in everything.values()) / SHARDS
    shards: list[list[str]] = [[] for _ in range(SHARDS)]
    written = 0
    for name, tensor in everything.items():
        shards[min(int(written / limit), SHARDS - 1)].append(name)
        written += tensor.nbytes
    yield from shards


def _write_json(path: Path, content: dict[str, object]) -> None:
    _write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _refuse_foreign(target: Path, ours: set[str]) -> None:
    """Never replace a folder that holds anything but an earlier demo model."""
    if not target.exists():
        return
    foreign = not target.is_dir() or {path.name for path in target.iterdir()} - ours
    if foreign:
        raise UserError(
            "DEMO_TARGET",
            f"{target} exists and holds other files than a demo model.",
            "Name a new folder, or remove this one.",
        )


def _swap(fresh: Path, target: Path, old: Path) -> None:
    if target.exists():
        os.rename(target, old)
    os.rename(fresh, target)
    if old.exists():
        shutil.rmtree(old)
