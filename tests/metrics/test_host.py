"""Errors when Quantus cannot be imported."""

import pytest

from quantus_concepts.metrics.host.errors import with_import_advice


def test_a_library_that_opencv_lacks_is_named_with_what_to_install():
    missing = ImportError("libGL.so.1: cannot open shared object file: No such file or directory", name="cv2")
    other = ImportError("numpy.core.multiarray failed", name="cv2")
    for error, message in (
        (missing, "libGL.so.1.*apt-get install.*opencv-python-headless"),
        (other, "multiarray failed$"),
    ):

        def get(name, error=error):
            raise error

        with pytest.raises(ImportError, match=f"(?s){message}"):
            with_import_advice(get)("CGIM")
    assert with_import_advice(len)("abc") == 3
