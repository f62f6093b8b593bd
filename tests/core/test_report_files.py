"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from torchscan.report.files import write_text


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "report.md"
    file.write_text("before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(file, "after")
    assert caught.value.filename == str(file)
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_replaced_file_keeps_its_mode_and_its_link(tmp_path):
    file, link = tmp_path / "report.md", tmp_path / "link.md"
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to(file)
    write_text(link, "after ü \ud800\n")
    assert file.read_bytes() == "after ü ".encode() + b"\\ud800\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()


def test_a_new_file_has_the_usual_mode(tmp_path):
    file = tmp_path / "new.md"
    write_text(file, "x")
    other = tmp_path / "other.md"
    other.write_text("x")
    assert file.stat().st_mode == other.stat().st_mode


def test_an_impossible_place_is_an_error_about_that_place(tmp_path):
    for file in (tmp_path / "none" / "a.md", tmp_path):
        with pytest.raises((FileNotFoundError, IsADirectoryError)) as caught:
            write_text(file, "x")
        assert caught.value.filename == str(file)
    assert list(tmp_path.iterdir()) == []
