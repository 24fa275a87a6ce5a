"""Errors when Quantus cannot be imported."""

import pytest

from quantus_concepts.metrics.host.errors import import_advice, with_import_advice


@pytest.mark.parametrize("library", ["libGL.so.1", "libxcb.so.1", "libgthread-2.0.so.0"])
def test_a_library_that_opencv_lacks_is_named_with_what_to_install(library):
    missing = ImportError(f"{library}: cannot open shared object file: No such file or directory", name="cv2")
    advice = str(import_advice(missing))
    for word in (library, "apt-get install libgl1 libglib2.0-0", "opencv-python-headless"):
        assert word in advice

    def get(name):
        raise missing

    with pytest.raises(ImportError, match="apt-get install") as raised:
        with_import_advice(get)("CGIM")
    assert raised.value.__cause__ is missing


def test_other_errors_are_left_as_they_are():
    for other in (ImportError("numpy.core.multiarray failed", name="cv2"), ImportError("no libx.so.1", name="torch")):
        assert import_advice(other) is other
    assert with_import_advice(len)("abc") == 3
