"""The table of generated questions shows the counts of each folder."""

import re

import pytest

from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.report.material_counts import counts_table, labels_table


def test_each_row_has_its_counts_and_the_share_that_is_left(tmp_path):
    counts = {"generated": 2000, "deduplicated": 1900, "filtered": 500, "queries": 480, "pairs": 500, "passages": 300}
    write_json(tmp_path / "global" / "counts.json", counts)
    write_json(tmp_path / "file" / "counts.json", {"rows": 9, "queries": 7, "passages": 8})
    html = counts_table({"global": tmp_path / "global", "<file>": tmp_path / "file"}).data
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)[1:]]
    assert rows == [
        ["global", "2,000", "1,900", "500", "480", "300", "25.0"],
        ["&lt;file&gt;", "&ndash;", "&ndash;", "&ndash;", "7", "8", "&ndash;"],
    ]


def test_a_folder_without_counts_is_named(tmp_path):
    with pytest.raises(InputError, match="nothing"):
        counts_table({"global": tmp_path / "nothing"})


def test_labels_are_counted_by_threshold(tmp_path):
    counts = {
        "queries": 200, "queries_kept": 50, "positives": 60, "negatives": 700, "known_retrieved": 40,
        "known_positive": 30, "known_negative": 2,
    }  # fmt: skip
    write_json(tmp_path / "strict" / "counts.json", {"chosen": counts, "thresholds": []})
    html = labels_table({"<0.9>": tmp_path / "strict"}).data
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells == ["&lt;0.9&gt;", "200", "25.0", "60", "700", "75.0", "5.0"]
