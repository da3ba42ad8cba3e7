"""Export: a trained model as a folder that sentence-transformers and transformers open unchanged, with its card.

Page of the book: practice/own-corpus.
"""

from pathlib import Path

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, write_text
from dr_lib.lab.finished import collection_of, models_of, open_models
from dr_lib.lab.records import Record
from dr_lib.models import CrossEncoder, DenseEncoder
from dr_lib.report.model_card import cross_encoder_card, dense_card

UNKNOWN = "unknown to the exporter; ask whoever trained it"


def export(
    source: Record | Path | str, to: Path | str, *, name: str | None = None, collection: Collection | None = None
) -> list[Path]:
    """Write the model or models of a run, each as a folder with a card.

    Args:
        source: a record of this machine, the file of one, or a folder with a saved encoder.
        to: the new folder; one that an earlier export wrote is replaced. Where a run has two encoders or a re-ranker,
            each gets a folder below it.
        name: title of the card; by default made from the record, else from the folder's name.
        collection: what the model was trained on, for what the card says of licence and generated questions; by
            default that of the record, if it can be opened here.

    Returns:
        The folders written.

    Raises:
        InputError: no finished model behind `source`, or `to` holds something that is no export.
    """
    if isinstance(source, Record):
        models, record = models_of(source), source
    else:
        models, record = open_models(Path(source).expanduser())
    target = Path(to).expanduser()
    known = collection or trained_on(record)
    licence, asked = (known.licence, known.info.get("questions", "")) if known else (UNKNOWN, "")
    places = [target / kind if len(models) > 1 else target for kind in models]
    for place in places:
        check_free(place)
    for (kind, source_folder), place in zip(models.items(), places, strict=True):
        title = name or (f"{record.label}: {record.study}" if record else source_folder.resolve().name)
        write_model(source_folder, place, title=f"{title} ({kind})", record=record, licence=licence, asked=asked)
    return places


def trained_on(record: Record | None) -> Collection | None:
    """The collection of a run where it can be opened: a record holds no path, and a folder may have changed since."""
    try:
        return collection_of(record) if record else None
    except InputError:
        return None


def check_free(place: Path) -> None:
    """Raise `InputError` if a folder holds anything but an earlier export: it would be lost."""
    if place.is_file() or (place.is_dir() and any(place.iterdir()) and not _is_export(place)):
        raise InputError("is there already and is no exported model", where=place, fix="Name a new folder.")


def _is_export(place: Path) -> bool:
    return (place / "README.md").is_file() and any(
        (place / settings).is_file() for settings in ("dense.json", "cross_encoder.json")
    )


def write_model(source: Path, place: Path, *, title: str, record: Record | None, licence: str, asked: str) -> None:
    """Write one model with its card, and its record if there is one, in one step."""
    told = {"name": title, "record": record, "data_licence": licence, "asked": asked}
    with fresh_folder(place) as draft:
        if (source / "cross_encoder.json").is_file():
            reranker = CrossEncoder.from_pretrained(source)
            reranker.export(draft)
            card = cross_encoder_card(reranker.settings, **told)
        else:
            encoder = DenseEncoder.from_pretrained(source)
            encoder.export(draft)
            hidden = encoder.encoder.config.hidden_size
            card = dense_card(encoder.settings, hidden, **told)
        write_text(draft / "README.md", card)
        if record:
            record.save(draft).replace(draft / "record.json")
