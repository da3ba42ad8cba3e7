"""Files of JSON and YAML: whatever cannot be read ends in one error that names the file."""

from pathlib import Path

import pytest

from dr_lib.errors import InputError
from dr_lib.files import read_json, read_sealed, read_yaml, sealed, write_json


@pytest.mark.parametrize("read", [read_json, read_yaml])
@pytest.mark.parametrize(
    "content", [b"[" * 1000, b"a: [", b'"\xff"', b"a: " + b"9" * 5000, b"9" * 5000]
)
def test_what_is_no_json_or_yaml_is_named_with_its_place(read, content, tmp_path):
    (tmp_path / "values").write_bytes(content)
    with pytest.raises(InputError, match=r"values.*: not valid (JSON|YAML)"):
        read(tmp_path / "values")


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_folder_or_a_path_below_a_file_is_named(read, tmp_path):
    (tmp_path / "file").write_text("")
    places = {"": "cannot be read", "missing": "no such file", "file/below": "cannot be read"}
    for place, said in places.items():
        with pytest.raises(InputError, match=said) as error:
            read(tmp_path / place)
        assert error.value.where == str(Path(tmp_path / place))


def test_a_sealed_object_comes_back_and_an_altered_one_is_refused_with_the_way_out(tmp_path):
    write_json(tmp_path / "whole.json", sealed({"outcome": "not shown"}))
    assert read_sealed(tmp_path / "whole.json", "certificate", "Verify again.") == {
        "outcome": "not shown"
    }
    text = (tmp_path / "whole.json").read_text()
    for said, content in {
        "altered": text.replace("not shown", "equal"),
        "not a certificate": "[]",
        "not valid JSON": "{",
    }.items():
        (tmp_path / "broken.json").write_text(content)
        with pytest.raises(InputError, match=rf"broken\.json.*{said}.*Verify again"):
            read_sealed(tmp_path / "broken.json", "certificate", "Verify again.")
