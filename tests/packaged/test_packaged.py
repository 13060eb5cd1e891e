"""Pretrained models of packages that may be installed: they compute what ONNX Runtime does."""

import pytest

from tests import needs
from tests.packaged import ocr
from tests.packaged.models import SPEECH, TOLERANCE, compare

pytestmark = pytest.mark.slow


@needs.package("silero_vad", "silero-vad")
@pytest.mark.parametrize("model", SPEECH, ids=lambda model: model.name)
def test_speech_is_heard_as_onnxruntime_hears_it(model):
    assert compare(model) <= TOLERANCE


@needs.package(ocr.MODULE, ocr.PACKAGE)
def test_text_is_read_as_onnxruntime_reads_it():
    theirs, ours = ocr.reader(), ocr.reader()
    sessions = ocr.replace_sessions(ours)
    for turned in (False, True):
        picture = ocr.page(turned)
        expected = ocr.lines_of(theirs, picture)
        assert ocr.lines_of(ours, picture) == expected
        assert len(expected) == len(ocr.LINES)
    for session in sessions.values():
        assert max(session.differences) <= TOLERANCE
