"""Contrastive pre-training on posts and their comments, for dialogue (Oguz et al. 2022, section 3.1.2).

Or on any texts that people wrote as a pair, such as title and body. No hard negatives: 200 million comments were too
many to index (section 3.3). Page: ideas/pairs.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from dr_lib.objectives.base import Settings
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings, stored_pairs
from dr_lib.objectives.source import Source
from dr_lib.training import RetrievalBatch


class RedditSettings(ContrastiveSettings):
    """Parameters of pre-training on pairs that people wrote: those of `ContrastiveSettings`."""

    def materials(self) -> dict[str, dict[str, Any]]:
        """The pairs, which may bring passages of their own."""
        return {"reddit_pairs": {}}


class Reddit(Contrastive):
    """Find the comment that answers a post."""

    settings_type: ClassVar[type[Settings]] = RedditSettings

    @classmethod
    def batches(cls, settings: RedditSettings, source: Source) -> Callable[[int], RetrievalBatch]:
        """Posts, each with one comment."""
        return stored_pairs(source, source.material("reddit_pairs"), settings.batch_pairs, negatives=0).batch
