"""The question generator that comes with the book: the small base model, trained on SQuAD's
training questions.

`dr-lib try`, the page on your own corpus and every smoke run write their questions with it. It is
in `book/weights/questions-2x128` with the record of its training, written by

    python book/_ext/question_weights.py    # SQuAD from DR_DATA or the hub; half an hour of a core

Page: ideas/generators.
"""

import json

import torch

from dr_lib import lab, places
from dr_lib.files import fresh_folder, write_json
from dr_lib.lab import Cache, Inputs, trainings
from dr_lib.lab.records import commit, training_log
from dr_lib.models import load_seq2seq, save_masked_lm
from dr_lib.tokens import load_tokenizer
from dr_lib.training import machine

COLLECTION = "squad"
SETTINGS = {"steps": 3000, "learning_rate": 1e-3, "tokens_per_batch": 8192, "checkpoint_every": 200}


def main() -> None:
    """Train the generator, or load it from the cache, and write its weights in 16 bits with its
    record.
    """
    recipe = lab.recipe_at("laptop", {"auxiliary": {"questions": SETTINGS}}, COLLECTION)
    collection = lab.open_sample(recipe.collection)
    stage, cache = trainings.question_generator(Inputs(recipe), seed=0).model.stage, Cache()
    made = cache.get(stage)
    manifest, log = cache.manifest(stage), training_log(made / "log.json")
    record = {
        "base": lab.open_checkpoint(recipe.base).facts(),
        "text": {
            "name": collection.name,
            "digest": collection.digest,
            "licence": collection.licence,
            "split": "train",
        },
        "queries": len(collection.qrels("train")),
        "settings": json.loads(recipe.auxiliary.questions.model_dump_json()),
        "layout": recipe.layout.model_dump(mode="json"),
        **{name: manifest[name] for name in ("key", "code", "created", "versions")},
        "curve": log.pop("curve"),
        "training": log,
        "machine": {
            name: fact for name, fact in machine.machine_facts().items() if name != "versions"
        },
        "commit": commit(),
    }
    with fresh_folder(places.embedded_writer(), "question generator") as draft:
        model = load_seq2seq(made / "model").to(torch.float16)
        for part in (model.config.encoder, model.config.decoder):
            part._name_or_path = ""  # a path of this machine
        save_masked_lm(model, load_tokenizer(made / "model"), draft)
        write_json(draft / "record.json", record)
    print(places.embedded_writer())


if __name__ == "__main__":
    main()
