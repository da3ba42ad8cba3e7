"""CoLA, MRPC, STS-B and SICK as tables."""


def test_cola_joins_both_dev_files(converted):
    rows = {
        "in_domain_train": "gj04\t1\t\tThey left.\r\n",
        "in_domain_dev": "a\t0\t*\tLeft  they.\n",
    }
    rows["out_of_domain_dev"] = "b\t1\t\tWe stayed.\n\n"
    folder = "acceptability_corpus/cola_public/raw"
    made = converted("glue-cola", {f"{folder}/{name}.tsv": text for name, text in rows.items()})
    head = ["sentence", "label", "source"]
    assert made == {
        "train.tsv": [head, ["They left.", "1", "gj04"]],
        "dev.tsv": [head, ["Left they.", "0", "a"], ["We stayed.", "1", "b"]],
    }


def test_mrpc_draws_its_dev_rows_by_their_ids(converted):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    train = head + "".join(f"1\t{n}\t{n + 1}\tOne {n}.\tTwo {n}.\n" for n in range(100, 200))
    test = head + "0\t1\t2\tThis.\tThat.\nbroken\n"
    made = converted(
        "glue-mrpc", {"msr_paraphrase_train.txt": train, "msr_paraphrase_test.txt": test}
    )
    assert made["test.tsv"][1:] == [["This.", "That.", "0", "1", "2"]]
    assert len(made["train.tsv"]) + len(made["dev.tsv"]) == 102
    assert 2 < len(made["dev.tsv"]) < 25
    assert ["One 100.", "Two 100.", "1", "100", "101"] in made["train.tsv"] + made["dev.tsv"]


def test_stsb_takes_score_genre_and_both_sentences(converted):
    start = "main-captions\tMSRvid\t2012test\t0001\t5.000\t"
    row = f"{start}A plane is taking off.\tA plane takes off.\textra\n"
    files = {f"data/sts-{split}.csv": row + "short\trow\n" for split in ("train", "dev", "test")}
    made = converted("glue-stsb", files)
    cells = ["A plane is taking off.", "A plane takes off.", "5.000", "main-captions"]
    assert made["dev.tsv"] == [["sentence1", "sentence2", "score", "genre"], cells]


def test_sick_reads_its_three_files(converted):
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    names = {"SICK_train": "1", "SICK_trial": "2", "SICK_test_annotated": "3"}
    files = {
        f"data/sts/sick2014/{name}.txt": f"{head}{n}\tA {n}\tB\t4.5\tNEUTRAL \r\n"
        for name, n in names.items()
    }
    made = converted("sick", files)
    assert made["dev.tsv"][1:] == [["A 2", "B", "4.5", "NEUTRAL"]]
    assert made["test.tsv"][1:] == [["A 3", "B", "4.5", "NEUTRAL"]]
