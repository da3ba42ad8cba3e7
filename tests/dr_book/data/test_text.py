"""Sentences, passages, draws and repairs on which the digests of collections depend."""

from dr_book.data.text import decode, letters, passages, repaired, share, split_of


def words(count: int, name: str = "w") -> str:
    return " ".join(f"{name}{number}" for number in range(count))


def test_a_passage_ends_before_it_has_a_fifth_more_than_a_hundred_words():
    sixty = [words(60, name) for name in "abc"]
    assert passages(sixty) == [f"{sixty[0]} {sixty[1]}", sixty[2]]
    assert passages([words(61, name) for name in "ab"]) == [words(61, "a"), words(61, "b")]


def test_a_short_last_passage_joins_the_one_before_it():
    assert passages([words(110), words(20, "x")]) == [f"{words(110)} {words(20, 'x')}"]
    assert len(passages([words(110), words(25, "x")])) == 2
    assert len(passages([words(150), words(20, "x")])) == 2  # together more than 160


def test_long_sentences_are_cut_and_blank_ones_go():
    assert passages([words(260), " ", ""]) == [
        " ".join(words(260).split()[:100]),
        " ".join(words(260).split()[100:]),
    ]
    assert passages([]) == []


def test_bytes_that_are_no_utf8_are_of_code_page_1252():
    assert decode("é".encode()) == decode(b"\xe9") == "é"
    assert decode(b"a\x81\xe9") == "a é"


def test_only_what_was_read_as_latin1_is_repaired():
    assert repaired("CafÃ© Ã\u00a0 la carte, café") == "Café à la carte, café"


def test_letters_make_texts_comparable():
    assert letters("What's  new?", " ") == "what s new" and letters("A-B c") == "abc"


def test_draws_are_the_same_everywhere():
    assert (
        share("a", "salt") == 0.053158458051271396
    )  # the first 12 hex digits of SHA-256 of "salt|a"
    drawn = [split_of(str(number), "salt", 0.1) for number in range(4000)]
    assert drawn == [split_of(str(number), "salt", 0.1) for number in range(4000)]
    assert 0.08 < drawn.count("dev") / 4000 < 0.12 and 0.08 < drawn.count("test") / 4000 < 0.12
