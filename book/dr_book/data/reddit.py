"""Reddit: titles and texts of posts, as pairs and as a retrieval task.

From the 1,000 best posts of each of 2,500 subreddits (August 2013); here 358 subreddits whose posts
are text and safe for work: book/data/subreddits.txt.
"""

import html
import re
from collections.abc import Iterator
from hashlib import sha1

from dr_book.data.dialogues import pairs
from dr_book.data.files import Files, Rows, collection
from dr_book.data.sheets import sheets_root
from dr_book.data.text import rows_of, sentences, share, split_of
from dr_lib.collections.beir import read_records
from dr_lib.collections.plain import one_line

UNWANTED = re.compile(
    r"\b(fuck\w*|shit\w*|cunt\w*|nigg\w+|fag\w*|porn\w*|sex\w*|rape\w*|penis\w*|vagina\w*|cock"
    r"|dick|tits?|boobs?|masturbat\w*|orgasm\w*|suicid\w*|kill (?:my|him|her|your)self|bitch\w*"
    r"|whore\w*|slut\w*|nude\w*|naked|nsfw|erect\w*|genital\w*|molest\w*|pedo\w*|incest\w*|cum"
    r"|jerk(?:ing)? off|blowjob\w*|retard\w*|asshole\w*)\b",
    re.IGNORECASE,
)
POSTS = 230
"""The most posts of a subreddit."""
WORDS = 160
MARKUP = [
    (r"\[([^\]]{1,200})\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\)", r"\1"),  # [text](link)
    (r"https?://\S+|www\.\S+", " "),
    (r"\S+@\S+\.\S+", " "),
    (r"\+?\d[\d\-. ()]{8,}\d", " "),  # telephones and other long numbers
    (r"(?<!\w)/?(r/[A-Za-z0-9_\-]{3,})", r"\1"),
    (r"(?<!\w)/?u/[A-Za-z0-9_\-]{3,}", "someone"),
    (r"(?m)^\s{0,3}(?:&gt;|>)+\s?", ""),
    (r"(?m)^\s*(?:[*+\-]|\d+[.)])\s+", ""),
    (r"(?m)^\s*#+\s*", ""),
    (r"(?m)^\s*(?:[-*_=]\s?){3,}\s*$", ""),
    (r"(\*\*|__|~~|\^+|`+)", ""),
    (r"(?<!\w)[*_]([^*_\n]{1,300})[*_](?!\w)", r"\1"),
    (r"\\", ""),
]
"""Patterns of Markdown, addresses and names, with replacements, in the order of application."""


def title_body(files: Files) -> Rows:
    """Pairs with a post's title as context and its text as response."""
    rows, seen = [], set()
    wanted = (sheets_root() / "subreddits.txt").read_text().split()
    for name in files.names("*.csv"):
        subreddit = name.split("/")[-1].removesuffix(".csv")
        if subreddit in wanted:
            posts = []
            for id_, title, text in _posts(files.text(name)):
                keys = {("title", title.lower()), ("text", text[:200].lower())}
                if not keys & seen:
                    seen |= keys
                    posts.append((id_, {"context": [title], "response": text, "sub": subreddit}))
            posts.sort(key=lambda post: share(post[0], "reddit-cap"))
            rows += [(split_of(id_, "reddit", 0.035), id_, row) for id_, row in posts[:POSTS]]
    return pairs("reddit-title-body", rows, near=lambda row: row["sub"], nearest=9)


def retrieval(files: Files) -> Rows:
    """The pairs as a collection: titles are queries, texts are passages, repeated texts merged.

    They are made from the posts, or read if the source is a folder of pairs.
    """
    if (files.folder / "pairs").is_dir():
        names = files.names("pairs/*.jsonl.gz")
        made = {name: [row for _, row in read_records(files.path(name))] for name in names}
    else:
        made = title_body(files)
    corpus, queries, judged = {}, [], {}
    for split in ("test", "dev", "train"):
        judged[split] = []
        for number, row in enumerate(made[f"pairs/{split}.jsonl.gz"]):
            text = " ".join(row["response"].split())
            id_ = f"r{sha1(text.lower().encode()).hexdigest()[:12]}"
            if id_ not in corpus:
                corpus[id_] = {"_id": id_, "title": "", "text": text}
                title = " ".join(row["context"][-1].split())
                queries.append({"_id": f"{split}-{number}", "text": title})
                judged[split].append((f"{split}-{number}", id_, 1))
    return collection([corpus[id_] for id_ in sorted(corpus)], queries, judged)


def _posts(table: str) -> Iterator[tuple[str, str, str]]:
    """Id, title and text of the posts of a subreddit that are prose and safe for work."""
    for row in rows_of(table):
        body, title = row["selftext"] or "", row["title"] or ""
        flagged = re.search("nsfw", f"{title} {row.get('link_flair_text') or ''}", re.IGNORECASE)
        if not body.strip() or len(body) > 40000 or row["over_18"] != "False" or flagged:
            continue
        title = re.sub(r"^\s*(?:\[[^\]]{1,40}\]|\([^)]{1,20}\))\s*", "", _plain(title))
        title = re.sub(r"\s*[\[(][^\])]{0,30}[\])]\s*$", "", title)
        text = _plain(body)
        if _is_prose(title, text):
            if text.lower().startswith(title.lower().rstrip(".?! ")):
                text = text[len(title) :].lstrip(" .?!-:")
            if len(text.split()) >= 25:
                yield row["id"], title, _beginning(text)


def _plain(text: str) -> str:
    """A text without Markdown, links, addresses and names of users, on one line."""
    text = html.unescape(html.unescape(text))
    for pattern, replacement in MARKUP:
        text = re.sub(pattern, replacement, text)
    return one_line(text)


def _is_prose(title: str, text: str) -> bool:
    """Whether both have enough words, hardly anything else, and no unwanted word."""
    letters = sum(sign.isalpha() or sign == " " for sign in text)
    plain = sum(ord(sign) < 128 for sign in text)
    return (
        not UNWANTED.search(title)
        and not UNWANTED.search(text)
        and len(text.split()) >= 25
        and 4 <= len(title.split()) <= 40
        and letters / len(text) >= 0.85
        and plain / len(text) >= 0.97
    )


def _beginning(text: str) -> str:
    """The first sentences, at most about 160 words."""
    kept, count = [], 0
    for words in map(str.split, sentences(text)):
        if count and count + len(words) > WORDS:
            break
        kept.append(" ".join(words[:200]))
        count += len(words)
    return " ".join(kept)
