"""Lakes in folders and prefixes whose names contain characters that URIs escape."""

from pathlib import Path

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate


def test_path_that_delta_readers_decode_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "feature%2Fx" / "lake"
    with pytest.raises(BadRequest, match="contains '%2F', which Delta readers take for '/'"):
        Lake.create(folder)
    assert not folder.parent.exists()
    with pytest.raises(BadRequest, match="take for '/'"):
        locate(tmp_path / "a\\b")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a%20b")
    with pytest.raises(BadRequest, match="contains '%20'"):
        locate(link / "lake")


@pytest.mark.parametrize("name", ["100%", "a b", "Ünïß", "a#b?c", "a+b&c=d", "q'uo\"te", "~x", "-x", "[ab]*", "a;$c"])
def test_other_names_are_names_of_lakes(tmp_path: Path, name: str) -> None:
    lake = Lake.create(tmp_path / name / "")
    assert lake.query("SELECT * FROM offsets", "offsets").num_rows == 0
    assert Lake.open(str(tmp_path / name) + "/").versions() == lake.versions()


def test_characters_that_end_the_path_of_a_uri_are_escaped() -> None:
    assert str(locate("s3://bucket/a#b?c d/")) == "s3://bucket/a%23b%3Fc d"
