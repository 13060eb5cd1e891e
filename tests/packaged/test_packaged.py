"""Pretrained models of installed packages agree with ONNX Runtime."""

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
    pages, sessions = ocr.read_pages()
    for expected, found in pages:
        assert found == expected
        assert len(expected) == len(ocr.LINES)
    for session in sessions.values():
        assert max(session.differences) <= TOLERANCE
