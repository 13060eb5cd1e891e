"""Destinations and inputs of every kind: replaced, written to or refused, and never waited for."""

import os
import socket
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from neocpu.foundation import files
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.foundation.files import (
    HUGE_PAGE,
    check_destination,
    move,
    read_file,
    replacing,
    write_in_huge_pages,
)

DATA = bytes(range(256)) * 4096


def write(path: Path, data: bytes = DATA) -> None:
    check_destination(path)
    with replacing(path) as file:
        file.write(data)


@pytest.fixture(params=["anonymous", "named"])
def file_system(request, monkeypatch):
    """One with files that have no name, and one without."""
    if request.param == "named":
        monkeypatch.setattr(files.os, "O_TMPFILE", os.O_CREAT | os.O_EXCL)  # EISDIR or EEXIST
        monkeypatch.setattr(files, "_NO_ANONYMOUS_FILES", (*files._NO_ANONYMOUS_FILES, 17))


@pytest.mark.usefixtures("file_system")
def test_a_file_is_replaced_and_the_umask_honoured(tmp_path):
    path = tmp_path / "out"
    mask = os.umask(0o027)
    try:
        for _ in range(2):
            write(path)
            assert path.read_bytes() == DATA
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(mask)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
def test_a_replaced_file_keeps_its_mode(tmp_path):
    path = tmp_path / "out"
    for mode in (0o600, 0o664):
        path.write_text("older")
        path.chmod(mode)
        write(path)
        assert path.read_bytes() == DATA
        assert stat.S_IMODE(path.stat().st_mode) == mode
    (tmp_path / "new").write_text("newer")
    path.chmod(0o640)
    assert move(tmp_path / "new", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def changed_owner(monkeypatch, path, owner):
    """Have a path look like another user's."""
    for name in ("stat", "lstat"):
        real = getattr(os, name)

        def call(asked, *arguments, real=real, **options):
            found = real(asked, *arguments, **options)
            if asked != path:
                return found
            return os.stat_result((*found[:4], owner, *found[5:10]))

        monkeypatch.setattr(files.os, name, call)


def test_a_file_that_another_has_put_there_hands_nothing_on(tmp_path, monkeypatch):
    """The owner of the new file, or another writer, could put other code into a model."""
    path = tmp_path / "out"
    path.write_text("a trap")
    path.chmod(0o666)
    tmp_path.chmod(0o1777)
    changed_owner(monkeypatch, path, os.geteuid() + 1)
    write(path)
    monkeypatch.undo()
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0
    assert path.stat().st_uid == os.geteuid()


def test_a_link_that_another_has_put_there_is_not_followed(tmp_path, monkeypatch):
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    shared.chmod(0o1777)
    victim.write_text("precious")
    link = shared / "out"
    link.symlink_to(victim)
    changed_owner(monkeypatch, link, os.geteuid() + 1)
    for use in (check_destination, write_through, lambda path: move(victim, path)):
        with pytest.raises(UsageError, match="it is a link that another user has put there"):
            use(link)
    assert victim.read_text() == "precious"
    shared.chmod(0o777)  # a folder in which everybody may replace files needs no protection
    write_through(link)
    assert victim.read_bytes() == DATA


@pytest.mark.usefixtures("file_system")
def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "out"
    path.write_text("older")

    def fail():
        with replacing(path) as file:
            file.write(DATA)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "older"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("step", ["link", "replace"])
@pytest.mark.parametrize("made", [False, True])
def test_an_interruption_beside_a_call_leaves_nothing(tmp_path, monkeypatch, step, made):
    """Ctrl-C is handled between two instructions: before the call, or right after it."""
    call = getattr(os, step)

    def interrupted(*arguments, **options):
        if made:
            call(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, step, interrupted)
    path = tmp_path / "out"
    path.write_text("older")
    try:
        write(path)
    except KeyboardInterrupt:
        pass
    else:
        assert step == "link"  # not called for a file that has a name from the beginning
    assert os.listdir(tmp_path) == ["out"]


def test_while_it_is_written_it_has_no_name(tmp_path):
    with replacing(tmp_path / "out") as file:
        file.write(DATA)
        assert os.listdir(tmp_path) == []


def test_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("x" * 255)
    write(path)
    assert path.read_bytes() == DATA


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "models").mkdir()
    target, link, other = tmp_path / "models" / "v1", tmp_path / "current", tmp_path / "link"
    target.write_text("older")
    link.symlink_to("models/v1")
    other.symlink_to(link)
    write(other)
    assert os.readlink(link) == "models/v1"
    assert os.readlink(other) == str(link)
    assert target.read_bytes() == DATA
    link.unlink()
    link.symlink_to("models/new")
    write(link)
    assert (tmp_path / "models" / "new").read_bytes() == DATA


def test_links_that_lead_nowhere(tmp_path):
    loop, far = tmp_path / "loop", tmp_path / "far"
    loop.symlink_to("loop")
    far.symlink_to(tmp_path / "none" / "out")
    for path in (loop, far):
        with pytest.raises(UsageError, match="cannot write"):
            check_destination(path)
        with pytest.raises(UsageError, match="cannot write"):
            write(path)
    assert sorted(os.listdir(tmp_path)) == ["far", "loop"]


def test_devices_are_written_to(tmp_path):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    for path in (Path("/dev/null"), link):
        write(path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(ArtifactError, match="cannot write /dev/full: No space left"):
        write(Path("/dev/full"))
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_pipes_are_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    write(path)
    reader.join(30)
    assert received == [DATA]
    assert path.is_fifo()


def test_a_pipe_that_nobody_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_PATIENCE", 0.0)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match=f"^cannot write {path}: nobody reads from it; choose"):
        write(path)


def test_a_pipe_that_became_a_file_is_not_written_over(tmp_path, monkeypatch):
    path = tmp_path / "out"
    path.write_text("precious")
    monkeypatch.setattr(files, "_is_stream", lambda path: True)
    with pytest.raises(UsageError, match="it has just been replaced"):
        write_through(path)
    assert path.read_text() == "precious"


def write_through(path):
    with replacing(path) as file:
        file.write(DATA)


def test_a_pipe_whose_reader_goes_away(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: os.close(os.open(path, os.O_RDONLY)))
    reader.start()
    with pytest.raises(BrokenPipeError):
        write_after(path, reader)


def write_after(path, reader):
    with replacing(path) as file:
        reader.join(30)
        file.write(DATA)


def test_folders_and_sockets_are_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path, kind in ((tmp_path, "a folder"), (tmp_path / "socket", "a socket")):
            for use in (check_destination, write):
                with pytest.raises(UsageError, match=f"cannot write {path}: it is {kind}; choose"):
                    use(path)
    assert os.listdir(tmp_path) == ["socket"]


def test_ordinary_files_are_read_up_to_a_limit(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(DATA)
    assert read_file(path, len(DATA)) == DATA
    with pytest.raises(OSError, match="it has more than 1 MB"):
        read_file(path, len(DATA) - 1)
    path.write_bytes(b"")
    assert read_file(path, 10) == b""


@pytest.mark.parametrize(
    ("path", "kind"), [("/dev/zero", "a device"), ("/", "a folder"), ("pipe", "a pipe")]
)
@pytest.mark.parametrize("pipes", [False, True])
def test_endless_files_are_not_read(tmp_path, monkeypatch, path, kind, pipes):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(OSError, match=f"it is {kind}, not a file"):
        read_file(path, 1 << 20, pipes=pipes)


def test_the_kernel_s_own_files_are_empty():
    assert read_file("/proc/kmsg", 1 << 20) == b""


def test_a_pipe_without_a_name_is_read_if_it_may(tmp_path):
    out, into = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(into, b"model"), os.close(into)))
    writer.start()
    assert read_file(f"/dev/fd/{out}", 5, pipes=True) == b"model"
    with pytest.raises(OSError, match="it is a pipe"):
        read_file(f"/dev/fd/{out}", 5)
    writer.join()
    os.close(out)


@pytest.mark.parametrize("lasting", [True, False])
def test_durable_files_and_their_folders_are_synced(tmp_path, monkeypatch, lasting):
    synced = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    with files.replacing(tmp_path / "file", lasting=lasting) as file:
        file.write(b"text")
    assert len(synced) == 2 * lasting
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_file_is_moved_where_no_copy_is_needed(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    source, target, link = tmp_path / "new", tmp_path / "out", tmp_path / "link"
    source.write_bytes(DATA)
    target.write_text("older")
    link.symlink_to("out")
    assert move(source, link)
    assert len(synced) == 2
    assert target.read_bytes() == DATA
    assert sorted(os.listdir(tmp_path)) == ["link", "out"]


def test_a_file_is_not_moved_to_devices_other_groups_or_other_disks(tmp_path, monkeypatch):
    source, shared = tmp_path / "new", tmp_path / "shared"
    source.write_bytes(DATA)
    shared.mkdir()
    shared.chmod(0o2755)
    assert not move(source, Path("/dev/null"))
    assert not move(source, shared / "out")  # its group would be another
    assert not move(source, Path("/proc/self/out"))  # another disk
    for folder in (tmp_path / "none", shared):
        with pytest.raises(UsageError, match="cannot write"):
            move(source, folder / "out" if folder is not shared else folder)
    assert source.read_bytes() == DATA
    assert sorted(os.listdir(tmp_path)) == ["new", "shared"]


@pytest.mark.parametrize("sizes", [[], [0, 5, 0], [3, HUGE_PAGE - 3, 1], [2 * HUGE_PAGE + 7, 9]])
def test_pieces_are_joined_to_huge_pages(sizes):
    random = np.random.default_rng(0)
    parts = [random.integers(256, size=size, dtype=np.uint8).data for size in sizes]
    written = []
    file = SimpleNamespace(write=lambda piece: written.append(bytes(piece)))
    write_in_huge_pages(file, parts)
    assert b"".join(written) == b"".join(map(bytes, parts))
    assert [len(piece) for piece in written[:-1]] == [HUGE_PAGE] * (len(written) - 1)
    assert len(written[-1]) < HUGE_PAGE
